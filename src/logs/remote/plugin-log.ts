/** The log of a container that a plugin takes, by way of a FIFO on the event loop. */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { internal, isEngineError } from '../../errors/engine-error.js';
import type { LogInfo, LogPlugin } from '../../ports/log-plugin.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { makeFifo } from '../../sys/files/inode.js';
import { encodeLogEntry } from './log-entry.js';
import { infoOf } from './log-info.js';
import { DEFAULT_BATCH, type RemoteRecord, type RemoteSink } from './remote-sink.js';

/** A plugin may open its end after it has answered, within this time. */
const PATIENCE_MS = 2_000;
const RETRY_MS = 20;
const MAX_ATTEMPTS = 3;
/** A plugin that is away is asked again after this time. */
const AWAY_MS = 1_000;

interface Pipe {
  readonly name: string;
  readonly socket: Socket;
  /** Time of the plugin's answer, by the clock of `performance`. */
  readonly openedAt: number;
}

/** Opens the log. @throws EngineError with the plugin's refusal. */
export async function openPluginSink(plugin: LogPlugin, container: LoggedContainer): Promise<RemoteSink> {
  const info = infoOf(container);
  let pipe = await openPipe(plugin, info);
  return {
    ...DEFAULT_BATCH,
    async send(records, signal) {
      const bytes = Buffer.concat(records.map((record: RemoteRecord) => encodeLogEntry(record)));
      for (let attempt = 1; ; attempt++) {
        try {
          return await write(pipe.socket, bytes, signal);
        } catch (error) {
          if (signal.aborted || attempt >= MAX_ATTEMPTS) throw error;
        }
        pipe = (await openAgain(plugin, pipe, signal)) ?? (await replacePipe(plugin, pipe, info, signal));
      }
    },
    close() {
      pipe.socket.end();
      plugin
        .stopLogging(pipe.name)
        // A plugin that has gone has nothing to end.
        .catch(() => undefined)
        .finally(() => void removePipe(plugin, pipe));
    },
  };
}

/** Opens a FIFO again that its reader has not opened yet. Undefined: nobody will. */
async function openAgain(
  { directory }: LogPlugin,
  { name, openedAt }: Pipe,
  signal: AbortSignal,
): Promise<Pipe | undefined> {
  while (performance.now() - openedAt < PATIENCE_MS) {
    try {
      return { name, openedAt, socket: writerOf(openPipeEnd(join(directory, name), constants.O_WRONLY)) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') return undefined;
    }
    await sleep(RETRY_MS, undefined, { signal });
  }
  return undefined;
}

/**
 * Opens a FIFO for a plugin that was started again, and has forgotten what it read. One that is disabled, or does not
 * answer, is waited for: it may come back, and the container waits as for one that does not read.
 */
async function replacePipe(plugin: LogPlugin, pipe: Pipe, info: LogInfo, signal: AbortSignal): Promise<Pipe> {
  await removePipe(plugin, pipe);
  for (;;) {
    try {
      plugin.requireEnabled();
      return await openPipe(plugin, info, signal);
    } catch (error) {
      if (signal.aborted || !isAway(error)) throw error;
    }
    await sleep(AWAY_MS, undefined, { signal });
  }
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
  const pipe = { name, socket: writerOf(openPipeEnd(path, constants.O_WRONLY)), openedAt: performance.now() };
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

async function removePipe({ directory }: LogPlugin, { name, socket }: Pipe): Promise<void> {
  if (!socket.writableEnded) socket.destroy();
  await rm(join(directory, name), { force: true });
}

function write(socket: Socket, bytes: Buffer, signal: AbortSignal): Promise<void> {
  const written = new Promise<void>((resolve, reject) => {
    socket.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
  return unlessAborted(signal, written);
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
