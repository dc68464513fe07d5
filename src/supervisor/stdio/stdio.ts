/**
 * A process's standard streams as FIFOs: the shim copies between them and the process. They are sockets of the event
 * loop (never fs streams, which would each hold a thread of the pool), so a paused reader stops the process itself.
 */
import { closeSync, constants, mkdirSync, openSync, rmdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { finished, type Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { internal, messageOf, unavailable } from '../../errors/engine-error.js';
import type { OutputSpool, ProcessStdio, StdioPaths } from '../../ports/supervisor.js';
import { removeFileNow } from '../../sys/files/remove-file.js';
import type { DescriptorKeeper } from '../../sys/process/descriptor-keeper.js';
import { makeFifo, openFifoReader, openFifoWriter } from './fifo.js';
import { FifoOutput } from './fifo-output.js';
import { FileSpool, removeSpool } from './output-spool.js';

// The shim opens its end within the Create or Start call; these cover a slow one.
const STDIN_RETRY_MS = 5;
const STDIN_TIMEOUT_MS = 10_000;

export interface StdioRequest {
  /** Directory for this process's FIFOs alone. It is created, and removed by `close`. */
  readonly dir: string;
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  /** With a terminal there is no separate stderr: everything comes on stdout. */
  readonly terminal: boolean;
  /** The output can be kept until it is logged. */
  readonly kept?: KeptOutput;
}

export interface KeptOutput {
  /** Told when the FIFOs are removed. */
  readonly onClose: () => void;
  /** Told when what is read cannot be kept any more; it is read all the same. */
  readonly onUnkept: (error: unknown) => void;
}

/**
 * Makes the FIFOs and opens their reading ends; call it before the task (or the exec) is created.
 * @throws EngineError when a FIFO cannot be made; nothing is left then.
 */
export function createStdio(request: StdioRequest): ProcessStdio {
  const { dir, terminal } = request;
  // The shim wants both outputs or none, a terminal always its one; what nobody asked for is read and dropped.
  const hasOutput = request.stdout || request.stderr || request.stdin || terminal;
  const path = (name: string, isWanted: boolean): string => (isWanted ? join(dir, name) : '');
  const paths: StdioPaths = {
    stdin: path('stdin', request.stdin),
    stdout: path('stdout', hasOutput),
    stderr: path('stderr', hasOutput && !terminal),
    terminal,
  };
  if (!hasOutput) return new FifoStdio(paths, undefined, undefined);

  const readers: Readable[] = [];
  const open = (fifo: string): Readable | undefined => {
    const reader = openReader(fifo, (path): Readable => (request.kept ? new FifoOutput(path) : openFifoReader(path)));
    if (reader) readers.push(reader);
    return reader;
  };
  try {
    const isNew = mkdirSync(dir, { recursive: true, mode: 0o700 }) !== undefined;
    if (request.kept && !isNew) removeSpool(dir);
    for (const fifo of pathsOf(paths)) makeNewFifo(fifo);
    const stdout = open(paths.stdout);
    const stderr = open(paths.stderr);
    if (!request.stdout) stdout?.resume();
    if (!request.stderr) stderr?.resume();
    return new FifoStdio(paths, stdout, stderr, request);
  } catch (error) {
    for (const reader of readers) reader.destroy();
    removeFifos(paths);
    throw internal(`cannot make the standard streams of the process: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Opens the FIFOs of a process that is already running, after a restart of the daemon. A FIFO that is gone yields no
 * stream.
 * @param isEnded it has exited: then its output ends also if the last writer was gone before.
 */
export function reopenStdio(paths: StdioPaths, kept?: KeptOutput, isEnded = false): ProcessStdio {
  const open = (path: string): FifoOutput => new FifoOutput(path, isEnded);
  const stdout = openReader(paths.stdout, open, 'if-present');
  const stderr = openReader(paths.stderr, open, 'if-present');
  return new FifoStdio(paths, stdout, stderr, { stdout: true, stderr: true, ...(kept && { kept }) });
}

/**
 * Has the outputs of a process kept: what is in them outlives the daemon and the process.
 * @throws EngineError when nobody can keep them.
 */
export async function keepOutputs(keeper: DescriptorKeeper, { stdout, stderr }: StdioPaths): Promise<void> {
  const fds: number[] = [];
  try {
    for (const path of [stdout, stderr]) {
      if (path !== '') fds.push(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
    }
    if (fds.length > 0) await keeper.hold(keptName(stdout), fds);
  } finally {
    for (const fd of fds) closeSync(fd);
  }
}

/** Ends what `keepOutputs` began. */
export function releaseOutputs(keeper: DescriptorKeeper, { stdout }: Pick<StdioPaths, 'stdout'>): void {
  keeper.release(keptName(stdout));
}

/** The last two directories together are of one process alone: `io/ID` for a container, `ID/io` for a plugin. */
function keptName(stdout: string): string {
  const dir = dirname(stdout);
  return `${basename(dirname(dir))}/${basename(dir)}`;
}

class FifoStdio implements ProcessStdio {
  readonly paths: StdioPaths;
  readonly stdout: Readable | undefined;
  readonly stderr: Readable | undefined;
  readonly spool: OutputSpool | undefined;
  readonly #readers: readonly Readable[];
  #stdin: Socket | undefined;
  #isClosed = false;
  readonly #kept: KeptOutput | undefined;

  constructor(
    paths: StdioPaths,
    stdout: Readable | undefined,
    stderr: Readable | undefined,
    wanted: Pick<StdioRequest, 'stdout' | 'stderr' | 'kept'> = { stdout: true, stderr: true },
  ) {
    this.paths = paths;
    this.#kept = wanted.kept;
    this.stdout = wanted.stdout ? stdout : undefined;
    this.stderr = wanted.stderr ? stderr : undefined;
    this.#readers = [stdout, stderr].filter((reader) => reader !== undefined);
    if (wanted.kept) {
      const outputs = {
        ...(stdout instanceof FifoOutput && { stdout }),
        ...(stderr instanceof FifoOutput && { stderr }),
      };
      this.spool = new FileSpool(dirname(paths.stdout), outputs, wanted.kept.onUnkept);
    }
  }

  async openStdin(): Promise<Socket | undefined> {
    if (this.paths.stdin === '') return undefined;
    const giveUpAt = performance.now() + STDIN_TIMEOUT_MS;
    while (!this.#isClosed) {
      try {
        this.#stdin = openFifoWriter(this.paths.stdin);
        return this.#stdin;
      } catch (error) {
        if (errnoOf(error) !== 'ENXIO' || performance.now() > giveUpAt) {
          throw unavailable(`cannot open stdin of the process: ${messageOf(error)}`, { cause: error });
        }
      }
      await delay(STDIN_RETRY_MS);
    }
    return undefined;
  }

  async drained(timeoutMs: number): Promise<boolean> {
    const timeout = new AbortController();
    const ends = this.#readers.map(
      (reader) =>
        new Promise<void>((resolve) => {
          if (reader.destroyed) resolve();
          else finished(reader, { signal: timeout.signal }, () => resolve());
        }),
    );
    const timer = setTimeout(() => timeout.abort(), timeoutMs);
    await Promise.all(ends);
    clearTimeout(timer);
    return !timeout.signal.aborted;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const stream of [this.#stdin, ...this.#readers]) stream?.destroy();
    this.spool?.remove();
    removeFifos(this.paths);
    this.#kept?.onClose();
  }
}

/** Makes a FIFO. It replaces one of an earlier process, if the daemon was killed: nobody else uses this directory. */
function makeNewFifo(path: string): void {
  try {
    makeFifo(path);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
    removeFileNow(path);
    makeFifo(path);
  }
}

function openReader<T extends Readable>(
  path: string,
  open: (path: string) => T,
  presence: 'required' | 'if-present' = 'required',
): T | undefined {
  if (path === '') return undefined;
  try {
    return open(path);
  } catch (error) {
    if (presence === 'if-present' && errnoOf(error) === 'ENOENT') return undefined;
    throw unavailable(`cannot open the output of the process: ${messageOf(error)}`, { cause: error });
  }
}

function errnoOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

function pathsOf({ stdin, stdout, stderr }: StdioPaths): string[] {
  return [stdin, stdout, stderr].filter((path) => path !== '');
}

/** Removes the FIFOs and their directory. Files that are gone, or are not ours, are left as they are. */
function removeFifos(paths: StdioPaths): void {
  const fifos = pathsOf(paths);
  const [first] = fifos;
  if (first === undefined) return;
  try {
    for (const fifo of fifos) removeFileNow(fifo);
    rmdirSync(dirname(first));
  } catch {
    // Somebody else's files are in the directory, or it is gone already: neither is ours to remove.
  }
}
