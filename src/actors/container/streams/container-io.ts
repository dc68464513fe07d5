/**
 * The byte streams of one container: FIFOs on one side, its log and attached clients on the other. Bytes never ride in
 * events: an actor grants the handle, the routes pump it.
 */
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { AttachHub } from '../../../logs/attach/attach-hub.js';
import type { ContainerLog, StreamName } from '../../../ports/logs.js';
import type { ProcessStdio, StdioPaths } from '../../../ports/supervisor.js';
import { givePiece } from '../../../sys/files/piece-pool.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { allDone, type Undo } from '../life/undo.js';
import { loggedContainer } from './logged-container.js';
import { widenWhenFlooded } from './wide-output.js';

/** A start needs these parts of the streams. */
export interface OpenedIo {
  readonly paths: StdioPaths;
  readonly logPath: string;
  /** Opens stdin for whoever is attached; call it when the task exists. */
  started(): Promise<void>;
}

export class ContainerIo {
  /** Live output, for attached clients; they may come before the first start. */
  readonly hub = new AttachHub();
  #log: ContainerLog | undefined;
  /** This counts the lines that were dropped by the log that was closed last. */
  #droppedLines = 0;
  #stdio: ProcessStdio | undefined;
  #stdin: Socket | undefined;
  /** Ends the streams of those who were attached to the run that has ended. */
  #endParted: (() => void) | undefined;
  readonly #stdinWaiters = new Set<(stdin: Socket | undefined) => void>();

  constructor(private readonly deps: ContainerDeps) {}

  /** The open log while the container runs. */
  get log(): ContainerLog | undefined {
    return this.#log;
  }

  /** Lines of the latest run that were not logged. */
  get droppedLines(): number {
    return this.#log?.droppedLines ?? this.#droppedLines;
  }

  /** Makes FIFOs and log for a start. */
  async open(record: ContainerRecord, undo: Undo): Promise<OpenedIo> {
    const { config, id } = record;
    undo.add('container streams', () => this.close());
    const openStdio = async (): Promise<ProcessStdio> => {
      return (this.#stdio = await this.deps.stdio.create({
        dir: `${this.deps.ioRoot}/${id}`,
        stdin: config.OpenStdin,
        stdout: true,
        stderr: !config.Tty,
        terminal: config.Tty,
        isKept: true,
      }));
    };
    const openLog = async (): Promise<ContainerLog> => (this.#log = await this.#openLog(record));
    // The one that is there is closed when the other one fails.
    const [stdio, log] = await allDone([openStdio(), openLog()]);
    await this.#use(id, stdio, log);
    return { paths: stdio.paths, logPath: log.path, started: () => this.#openStdin(stdio) };
  }

  /** Takes up the streams of a container that ran on while the daemon was away. Default: those that `open` made. */
  async reopen(record: ContainerRecord, paths = this.#pathsOf(record)): Promise<void> {
    const [stdio, log] = await Promise.all([this.deps.stdio.reopen(paths), this.#openLog(record, true)]);
    await this.#use(record.id, stdio, log);
    await this.#openStdin(stdio);
  }

  /**
   * Goes on with the output of a container that has ended while the daemon was away: what was not logged then is logged
   * until `drained`. Its FIFOs are kept by others meanwhile.
   */
  async recover(record: ContainerRecord): Promise<void> {
    const paths = { ...this.#pathsOf(record), stdin: '' };
    const [stdio, log] = await Promise.all([this.deps.stdio.reopenEnded(paths), this.#openLog(record, true)]);
    await this.#use(record.id, stdio, log);
  }

  #pathsOf({ id, config: { OpenStdin, Tty } }: ContainerRecord): StdioPaths {
    const path = (name: string): string => `${this.deps.ioRoot}/${id}/${name}`;
    return {
      stdin: OpenStdin ? path('stdin') : '',
      stdout: path('stdout'),
      stderr: Tty ? '' : path('stderr'),
      terminal: Tty,
    };
  }

  #openLog(record: ContainerRecord, isRunning = false): Promise<ContainerLog> {
    return this.deps.logs.open({ ...loggedContainer(record, this.deps.records.dir(record.id)), isRunning });
  }

  async #use(id: string, stdio: ProcessStdio, log: ContainerLog): Promise<void> {
    this.#stdio = stdio;
    this.#log = log;
    if (log.ledger) await stdio.spool?.begin(log.ledger);
    for (const stream of ['stdout', 'stderr'] as const) {
      const source = stdio[stream];
      if (source === undefined) continue;
      this.#pump(stream, source, log);
      widenWhenFlooded(source, stream, () => this.deps.find(id)?.state.pid ?? 0);
    }
  }

  /**
   * Log and attached clients both get every byte; whoever is behind stops the reading, so that nothing is lost. Clients
   * get no line before the log has it, because it would be missing there if the daemon were killed in between.
   */
  #pump(stream: StreamName, source: Readable, log: ContainerLog): void {
    let behind = 0;
    const waitFor = (whoever: { onceDrained(callback: () => void): void }): void => {
      behind++;
      source.pause();
      whoever.onceDrained(() => {
        if (--behind === 0) source.resume();
      });
    };
    const pass = (chunk: Buffer): void => {
      // Clients may have to wait for their sockets; a log has made its records, or a copy.
      if (this.hub.size === 0) givePiece(chunk);
      else if (!this.hub.write(stream, chunk)) waitFor(this.hub);
    };
    source.on('data', (chunk: Buffer) => {
      if (!log.write(stream, chunk)) waitFor(log);
      const written = log.written();
      if (written === undefined) pass(chunk);
      else void written.then(() => pass(chunk));
    });
    source.on('error', (error) => this.deps.log.warn({ err: error, stream }, 'container stream failed'));
  }

  async #openStdin(stdio: ProcessStdio): Promise<void> {
    this.#stdin = await stdio.openStdin();
    // A container that closes its stdin makes our writes fail: that is allowed and no error of the daemon.
    this.#stdin?.on('error', () => this.#stdin?.destroy());
    this.#settleStdin(this.#stdin);
  }

  #settleStdin(stdin: Socket | undefined): void {
    for (const settle of this.#stdinWaiters) settle(stdin);
    this.#stdinWaiters.clear();
  }

  /**
   * Resolves with the write end of stdin, now or once the container starts; undefined when it has none or `signal`
   * aborts first.
   */
  stdin(signal: AbortSignal): Promise<Socket | undefined> {
    if (this.#stdin) return Promise.resolve(this.#stdin);
    return new Promise((resolve) => {
      this.#stdinWaiters.add(resolve);
      signal.addEventListener('abort', () => (this.#stdinWaiters.delete(resolve), resolve(undefined)), { once: true });
    });
  }

  /** Closes the container's stdin for good: the process reads EOF. */
  async closeStdin(id: string): Promise<void> {
    const stdin = this.#stdin;
    if (!stdin || stdin.destroyed) return;
    await new Promise<void>((resolve) => stdin.once('close', () => resolve()).end());
    await this.deps.tasks.closeStdin(id).catch(() => undefined);
  }

  /**
   * Waits, up to a limit, until output is read to its end, then ends the log. Attached clients have all of it then. An
   * output that has not ended goes on until `close`.
   */
  async drained(timeoutMs: number): Promise<void> {
    const isOver = await this.#stdio?.drained(timeoutMs);
    this.#stdin?.destroy();
    this.#stdin = undefined;
    if (isOver === false) return;
    const log = this.#log;
    this.#log = undefined;
    if (log) await this.#end(log);
  }

  /** Parts the streams when the exit is published: clients that attach from now on wait for the next run. */
  part(): void {
    this.endParted();
    this.#endParted = this.hub.part();
  }

  /**
   * Ends the streams of clients that were attached to the run. They inspect the container at once, so its state must be
   * final by then.
   */
  endParted(): void {
    this.#endParted?.();
    this.#endParted = undefined;
  }

  async #end(log: ContainerLog, close = (): Promise<void> => log.close()): Promise<void> {
    this.#droppedLines = log.droppedLines;
    await close();
    this.#droppedLines = log.droppedLines;
  }

  /** Frees FIFOs and log of the run that ended. Idempotent. */
  async close(): Promise<void> {
    const [stdio, log] = [this.#stdio, this.#log];
    this.#stdio = undefined;
    this.#log = undefined;
    this.#stdin?.destroy();
    this.#stdin = undefined;
    // All that was read is kept until it is in the log.
    if (log) await this.#end(log);
    await stdio?.close();
  }

  /**
   * Leaves a running container to the next daemon: the lines that were read are logged. The beginning of a line is left
   * in the spool, if there is one, because it would be a record of its own in the log. The rest stays in the FIFOs.
   */
  async leave(): Promise<void> {
    const [stdio, log] = [this.#stdio, this.#log];
    this.#stdio = undefined;
    this.#log = undefined;
    for (const stream of ['stdout', 'stderr'] as const) {
      const source = stdio?.[stream];
      // In one turn, so that nothing more is read. A source that was held up has some that it did not pass on yet.
      source?.removeAllListeners('data');
      for (let chunk = takeFrom(source); chunk !== null; chunk = takeFrom(source)) log?.write(stream, chunk);
      source?.destroy();
    }
    const { spool } = stdio ?? {};
    const ledger = spool?.isKeeping === true ? log?.ledger : undefined;
    if (log) await this.#end(log, ledger && (() => ledger.leave()));
    if (ledger) spool?.leave();
    else spool?.remove();
  }

  /** Ends the streams of all clients, because the container is gone. */
  async dispose(): Promise<void> {
    this.#settleStdin(undefined);
    this.endParted();
    this.hub.end();
    await this.close();
  }
}

function takeFrom(source: Readable | undefined): Buffer | null {
  return source === undefined || source.destroyed ? null : (source.read() as Buffer | null);
}

/** The streams of all containers. */
export class ContainerIoRegistry {
  readonly #ios = new Map<string, ContainerIo>();

  constructor(private readonly deps: ContainerDeps) {}

  get(id: string): ContainerIo {
    let io = this.#ios.get(id);
    if (!io) this.#ios.set(id, (io = new ContainerIo(this.deps)));
    return io;
  }

  /** Returns how many lines of the latest run were not logged. */
  droppedLines(id: string): number {
    return this.#ios.get(id)?.droppedLines ?? 0;
  }

  /** Leaves all containers that run to the next daemon. */
  async leaveAll(): Promise<void> {
    await Promise.all(Array.from(this.#ios.values(), (io) => io.leave()));
  }

  async remove(id: string): Promise<void> {
    const io = this.#ios.get(id);
    this.#ios.delete(id);
    await io?.dispose();
  }
}
