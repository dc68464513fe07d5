/** The log of a container that a plugin takes, by way of a FIFO on the event loop. */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { internal, isEngineError, unavailable } from '../../errors/engine-error.js';
import type { LogInfo, LogPlugin } from '../../ports/log-plugin.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { makeFifo } from '../../sys/files/inode.js';
import { encodeLogEntry } from './log-entry.js';
import { infoOf } from './log-info.js';
import { DEFAULT_BATCH, type RemoteRecord, type RemoteSink } from './remote-sink.js';
import { SentEntries } from './sent-entries.js';

/** A plugin may open its end after it has answered, within this time. */
const PATIENCE_MS = 2_000;
const RETRY_MS = 20;
/** A plugin that is away is asked again after this time. */
const AWAY_MS = 1_000;
/** An upgrade of a plugin takes minutes. Then lines are dropped until it is back, as no container may wait for ever. */
const AWAY_LIMIT_MS = 5 * 60_000;
/** The room in a FIFO (pipe(7)). */
const FIFO_BYTES = 64 * 1024;

interface Pipe {
  readonly name: string;
  readonly socket: Socket;
  /** A second writing end. Without any, what the plugin has not read would go with it. */
  readonly kept: number;
  readonly sent: SentEntries;
  /** Time of the plugin's answer, by the clock of `performance`. */
  readonly openedAt: number;
}

/**
 * Opens the log. @param awayLimitMs is how long lines wait for a plugin that is away. @throws EngineError with the
 * plugin's refusal.
 */
export async function openPluginSink(
  plugin: LogPlugin,
  container: LoggedContainer,
  awayLimitMs = AWAY_LIMIT_MS,
): Promise<RemoteSink> {
  const info = infoOf(container);
  let pipe: Pipe | undefined = await openPipe(plugin, info);
  /** Lines are dropped, and the plugin is asked again at this time; 0: they wait. */
  let retryAt = 0;
  const deliver = async (entries: readonly Buffer[], end: number, signal: AbortSignal): Promise<void> => {
    for (let rest = entries; ;) {
      pipe ??= await openWhenBack(plugin, info, end, signal);
      try {
        return await write(pipe, rest, signal);
      } catch (error) {
        if (signal.aborted) throw error;
        rest = pipe.sent.takeBack(leftIn(pipe), rest);
        pipe = await openAgain(plugin, pipe, signal);
        if (performance.now() > end) throw error;
      }
    }
  };
  return {
    ...DEFAULT_BATCH,
    async send(records, signal) {
      const now = performance.now();
      if (now < retryAt) throw unavailable('the log plugin is away', { code: 'PLUGIN' });
      const entries = records.map((record: RemoteRecord) => encodeLogEntry(record));
      try {
        await deliver(entries, now + (retryAt > 0 ? 0 : awayLimitMs), signal);
        retryAt = 0;
      } catch (error) {
        retryAt = performance.now() + AWAY_MS;
        throw error;
      }
    },
    close() {
      if (pipe === undefined) return;
      const { name, socket, kept } = pipe;
      socket.end();
      closeSync(kept);
      plugin
        .stopLogging(name)
        // A plugin that has gone has nothing to end.
        .catch(() => undefined)
        .finally(() => void removeFifo(plugin, name));
    },
  };
}

/** Opens a FIFO again that its reader has not opened yet. Undefined: nobody will, and it is removed. */
async function openAgain(plugin: LogPlugin, pipe: Pipe, signal: AbortSignal): Promise<Pipe | undefined> {
  while (performance.now() - pipe.openedAt < PATIENCE_MS) {
    try {
      return { ...pipe, socket: writerOf(openPipeEnd(join(plugin.directory, pipe.name), constants.O_WRONLY)) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') break;
    }
    await sleep(RETRY_MS, undefined, { signal });
  }
  await removePipe(plugin, pipe);
  return undefined;
}

/**
 * Opens a FIFO for a plugin that was started again, and has forgotten what it read. One that is disabled, or does not
 * answer, is waited for: it may come back, and the container waits as for one that does not read.
 */
async function openWhenBack(plugin: LogPlugin, info: LogInfo, end: number, signal: AbortSignal): Promise<Pipe> {
  for (;;) {
    try {
      plugin.requireEnabled();
      return await openPipe(plugin, info, signal);
    } catch (error) {
      if (signal.aborted || performance.now() > end || !isAway(error)) throw error;
    }
    await sleep(AWAY_MS, undefined, { signal });
  }
}

/**
 * Takes what the plugin has not read out of a FIFO. What another one gets must be whole entries, and the end of the
 * directory with the plugin does not matter.
 */
function leftIn({ kept }: Pipe): Buffer {
  const bytes = Buffer.alloc(FIFO_BYTES);
  let length = 0;
  const reader = openSync(`/proc/self/fd/${kept}`, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    for (let count = -1; count !== 0; length += count)
      count = readSync(reader, bytes, length, FIFO_BYTES - length, null);
  } catch (error) {
    // There is no more in it.
    if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
  } finally {
    closeSync(reader);
  }
  return bytes.subarray(0, length);
}

/** While a plugin is disabled, or was not started again yet, its directory is gone. */
function isAway(error: unknown): boolean {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
  return isEngineError(error) && ['unavailable', 'deadline', 'conflict'].includes(error.kind);
}

function writerOf(fd: number): Socket {
  const socket = new Socket({ fd, readable: false, writable: true });
  // Each write reports its failure by itself.
  socket.on('error', () => undefined);
  return socket;
}

async function openPipe(plugin: LogPlugin, info: LogInfo, signal?: AbortSignal): Promise<Pipe> {
  const name = randomBytes(32).toString('hex');
  const path = join(plugin.directory, name);
  makeFifo(path);
  // A reader of our own lets ours be opened first, and a plugin opens its end while there is a writer.
  const reader = openPipeEnd(path, constants.O_RDWR);
  const [fd, kept] = [openPipeEnd(path, constants.O_WRONLY), openPipeEnd(path, constants.O_WRONLY)];
  const pipe = { name, socket: writerOf(fd), kept, sent: new SentEntries(), openedAt: performance.now() };
  try {
    await unlessAborted(signal, plugin.startLogging(name, info));
  } catch (error) {
    await removePipe(plugin, pipe);
    throw error;
  } finally {
    closeSync(reader);
  }
  return { ...pipe, openedAt: performance.now() };
}

/** Only a FIFO is opened: nobody else may have put something in its place. */
function openPipeEnd(path: string, mode: number): number {
  const fd = openSync(path, mode | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  if (fstatSync(fd).isFIFO()) return fd;
  closeSync(fd);
  throw internal(`${path} is no FIFO`, { code: 'LOG_PIPE' });
}

async function removePipe(plugin: LogPlugin, { name, socket, kept }: Pipe): Promise<void> {
  socket.destroy();
  closeSync(kept);
  await removeFifo(plugin, name);
}

async function removeFifo({ directory }: LogPlugin, name: string): Promise<void> {
  await rm(join(directory, name), { force: true });
}

async function write({ socket, sent }: Pipe, entries: readonly Buffer[], signal: AbortSignal): Promise<void> {
  sent.add(entries);
  const written = new Promise<void>((resolve, reject) => {
    socket.write(Buffer.concat(entries), (error) => (error ? reject(error) : resolve()));
  });
  await unlessAborted(signal, written);
  sent.written(FIFO_BYTES);
}

/** The work is not waited for any longer when the signal aborts. */
async function unlessAborted(signal: AbortSignal | undefined, work: Promise<void>): Promise<void> {
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal?.reason as Error);
  });
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await Promise.race([work, aborted]);
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}
