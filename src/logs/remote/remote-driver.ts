/** One kind of remote log: checks its options and opens it. */
import type { LoggedContainer, LogReadOptions } from '../../ports/logs.js';
import { badOption, type LogOptions } from '../options/option-values.js';
import type { RemoteSink } from './remote-sink.js';

export interface RemoteDriver {
  /** Its own options, when a name is all that can be wrong with them: a configuration is checked against these. */
  readonly options?: readonly string[];
  /** Checks the options at create: throws invalid with the texts of the existing engine. */
  validate(options: LogOptions): void;
  /** The path of the server's socket, where valid options name one: it must be there at create. */
  socketPath?(options: LogOptions): string | undefined;
  /** Connects. If it throws, the start of the container is refused. `signal` aborts when the log is closed. */
  open(container: LoggedContainer, signal: AbortSignal): Promise<RemoteSink>;
  /** Returns a reader of what the remote side has. Undefined: it reads no logs, so that a local copy is needed. */
  reader?(container: LoggedContainer): Promise<RemoteReader | undefined>;
}

export type RemoteReader = (options: LogReadOptions) => AsyncIterableIterator<Buffer>;

/** Options that most drivers take. */
export const ATTRIBUTE_OPTIONS = ['labels', 'labels-regex', 'env', 'env-regex', 'tag'] as const;

/** Throws an error for the first option that the driver does not know. */
export function refuseUnknown(driver: string, options: LogOptions, known: readonly string[]): void {
  const unknown = Object.keys(options)
    .sort()
    .find((name) => !known.includes(name));
  if (unknown !== undefined) throw badOption(`unknown log opt '${unknown}' for ${driver} log driver`);
}
