/** Reads the log of a container from the plugin that keeps it. */
import type { LogPlugin } from '../../ports/log-plugin.js';
import type { LoggedContainer, LogReadOptions } from '../../ports/logs.js';
import { localFormat } from '../drivers/local-format.js';
import { Stoppable } from '../reading/stoppable.js';
import { formatTimeFixed } from '../record-time.js';
import { LogEntryReader } from './log-entry-reader.js';
import { infoOf } from './log-info.js';

/** A time that means no limit: Go's zero. */
const NO_TIME = '0001-01-01T00:00:00Z';

/**
 * Returns what the plugin tells, ready for the wire. The plugin finds where to begin and whether to follow; streams and
 * times are looked at here, too, since it need not know of them.
 * @throws EngineError with the plugin's refusal, internal for an answer that is no log.
 */
export function readPluginLog(plugin: LogPlugin, container: LoggedContainer, options: LogReadOptions): Stoppable {
  return new Stoppable((signal) => readEntries(plugin, container, options, signal));
}

async function* readEntries(
  plugin: LogPlugin,
  container: LoggedContainer,
  options: LogReadOptions,
  signal: AbortSignal,
): AsyncGenerator<Buffer, undefined> {
  const entries = new LogEntryReader();
  const decoder = localFormat.createDecoder(options, () => undefined);
  const wanted = {
    Since: timeOf(options.sinceNs),
    Until: timeOf(options.untilNs),
    Tail: options.tail ?? -1,
    Follow: options.follow,
  };
  const pieces = await plugin.readLogs(infoOf(container), wanted, signal);
  for await (const piece of pieces) {
    const records = entries.take(piece);
    const output = decoder.decode(records, records.length);
    if (output.length > 0) yield output;
    if (decoder.isFinished) return;
  }
}

function timeOf(timeNs: bigint | undefined): string {
  return timeNs === undefined ? NO_TIME : formatTimeFixed(timeNs);
}
