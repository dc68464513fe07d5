/**
 * Runs the child containerd. It survives when the daemon is killed, and the next daemon takes it over. So it has its
 * own session, and its log is a FIFO that it holds open in both directions: a missing reader neither kills nor blocks
 * it, until 1 MiB was logged, or 64 KiB where the user may have no larger pipe. The end of that FIFO also tells when a
 * taken-over process dies.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError, messageOf, unavailable } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import { setPipeRoom } from '../sys/files/fd.js';
import { guardBoot } from './boot-guard.js';
import type { ContainerdPaths } from './containerd-config.js';
import { deferred } from './deferred.js';
import { makeFifo, openFifoReader } from './stdio/fifo.js';
import { LogLines } from './log-lines.js';
import { Progress } from './progress.js';

const LOG_BYTES = 1024 * 1024;

const BOOTED = 'containerd successfully booted';
// The line only tells early that the endpoint can be dialled; a containerd that words it otherwise starts later.
const BOOT_LINE_TIMEOUT_MS = 3_000;
const TERMINATE_CHECK_MS = 1_000;

export interface ContainerdOptions {
  readonly paths: ContainerdPaths;
  readonly config: string;
  readonly logger: Logger;
}

/** One running containerd. */
export interface Containerd {
  readonly pid: number;
  /** Resolves, with a text about its end, when the process is gone. */
  readonly died: Promise<string>;
  /** Returns the last lines of its log. */
  tail(): string;
  /**
   * Returns false when the process has made no progress for some time, or has ended: then no answer can be expected.
   */
  readonly isMoving: boolean;
  /** Ends the process by SIGTERM, and by SIGKILL if it does not end. Shims and containers go on. */
  terminate(): Promise<void>;
  /** Lets the process go on without this daemon; the next one adopts it. Its end is not heard of any more. */
  leave(): void;
}

/**
 * Starts containerd; resolves when it says that it is up.
 * @throws EngineError unavailable when there is no such binary or it ends at once, with its last log lines.
 */
export async function launchContainerd({ paths, config, logger }: ContainerdOptions): Promise<Containerd> {
  mkdirSync(paths.dir, { recursive: true, mode: 0o711 });
  writeFileSync(paths.config, config);
  rmSync(paths.log, { force: true });
  makeFifo(paths.log);
  const log = openFifoReader(paths.log);
  const child = spawnContainerd(paths);
  const { pid } = child;
  if (pid === undefined) {
    log.destroy();
    const [cause] = await once(child, 'error');
    throw notStarted(cause);
  }
  const endGuard = guardBoot(pid);
  writePidFile(paths.pidFile, pid);

  const process = follow(pid, log, logger, exitOf(child, log));
  void Promise.race([process.booted, process.died]).then(endGuard);
  const timer = new AbortController();
  const timeout = delay(BOOT_LINE_TIMEOUT_MS, undefined, { signal: timer.signal }).catch(() => undefined);
  const end = await Promise.race([process.booted, timeout, process.died]);
  timer.abort();
  if (end !== undefined) throw unavailable(`containerd ${end}:\n${process.tail()}`, { code: 'SUPERVISOR_FAILED' });
  return process;
}

/**
 * Takes over the containerd that an earlier daemon left running. If it has another configuration, lost its log or does
 * not answer, it is ended instead.
 * @param answers asks the endpoint again as long as the process makes progress.
 */
export async function adoptContainerd(
  { paths, config, logger }: ContainerdOptions,
  answers: (process: Containerd) => Promise<boolean>,
): Promise<Containerd | undefined> {
  const pid = readPidFile(paths.pidFile);
  if (pid === undefined || !isOurs(pid, paths)) return undefined;
  let log: Socket;
  try {
    log = openFifoReader(paths.log);
  } catch (error) {
    // Without its log, nobody would notice its end.
    logger.warn({ pid, reason: messageOf(error) }, 'replacing a containerd that lost its log');
    signal(pid, 'SIGKILL');
    return undefined;
  }
  const process = follow(
    pid,
    log,
    logger,
    closed(log).then(() => 'ended'),
  );
  // If it ended before its log was opened, the log never reports an end.
  if (!isOurs(pid, paths)) {
    log.destroy();
    return undefined;
  }
  if (!(await answers(process))) {
    logger.warn({ pid }, 'replacing a containerd that does not answer');
    signal(pid, 'SIGKILL');
    await process.died;
    return undefined;
  }
  if (readText(paths.config) === config) return process;
  logger.info({ pid }, 'replacing a containerd that is configured otherwise');
  await process.terminate();
  return undefined;
}

/** Removes the files that tell of a process which has ended. */
export function forgetContainerd(paths: ContainerdPaths): void {
  for (const file of [paths.pidFile, paths.log, paths.socket, paths.ttrpcSocket]) rmSync(file, { force: true });
}

/** Lets much be logged before anybody reads it, unless the user's pipes have too much already (EPERM: pipe(7)). */
function giveRoom(log: number): void {
  try {
    setPipeRoom(log, LOG_BYTES);
  } catch (error) {
    if (!isEngineError(error) || error.code !== 'EPERM') throw error;
  }
}

function spawnContainerd(paths: ContainerdPaths): ChildProcess {
  // Open for reading too, so that the log has a reader whatever becomes of us.
  const log = openSync(paths.log, constants.O_RDWR);
  try {
    giveRoom(log);
    // Readiness is ours to tell the service manager, not containerd's.
    const { NOTIFY_SOCKET: _, ...env } = process.env;
    const child = spawn('containerd', ['--config', paths.config], {
      cwd: '/',
      env,
      stdio: ['ignore', log, log],
      detached: true,
    });
    child.unref();
    return child;
  } finally {
    closeSync(log);
  }
}

function follow(
  pid: number,
  log: Socket,
  logger: Logger,
  died: Promise<string>,
): Containerd & { booted: Promise<void> } {
  let isDead = false;
  let isLeft = false;
  const gone = died.then((end) => {
    if (isLeft) return new Promise<never>(() => {});
    isDead = true;
    log.destroy();
    return end;
  });
  const booted = deferred();
  const progress = new Progress(pid);
  const lines = new LogLines(logger, (message) => {
    if (message.startsWith(BOOTED)) booted.resolve();
  });
  log.on('data', (chunk) => lines.push(chunk));
  return {
    pid,
    booted: booted.promise,
    died: gone,
    tail: () => lines.tail(),
    get isMoving() {
      return !isDead && progress.isMoving;
    },
    async terminate() {
      if (isDead) return;
      signal(pid, 'SIGTERM');
      progress.restart();
      const timer = setInterval(() => {
        if (!isDead && !progress.isMoving) signal(pid, 'SIGKILL');
      }, TERMINATE_CHECK_MS);
      await gone;
      clearInterval(timer);
    },
    leave() {
      isLeft = true;
      log.destroy();
    },
  };
}

/** Returns how the child ended, once its log was read to the end. */
async function exitOf(child: ChildProcess, log: Socket): Promise<string> {
  const logEnd = closed(log);
  const end = await new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => {
      resolve(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`);
    });
  });
  await logEnd;
  return end;
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('close', () => resolve());
  });
}

function notStarted(cause: unknown): Error {
  const isMissing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
  const message = isMissing
    ? 'containerd is not installed: install the apt package containerd, or name a running one with --supervisor'
    : `cannot start containerd: ${messageOf(cause)}`;
  return unavailable(message, { cause, code: 'SUPERVISOR_FAILED' });
}

/** Writes the file as a whole, so that a reader never sees half of it; it need not survive a crash of the machine. */
function writePidFile(path: string, pid: number): void {
  writeFileSync(`${path}.new`, `${pid}\n`);
  renameSync(`${path}.new`, path);
}

function readPidFile(path: string): number | undefined {
  const pid = Number.parseInt(readText(path) ?? '', 10);
  return Number.isInteger(pid) && pid > 1 ? pid : undefined;
}

/** True when the process runs with our configuration file: its id may belong to another one by now. */
function isOurs(pid: number, paths: ContainerdPaths): boolean {
  return readText(`/proc/${pid}/cmdline`)?.split('\0').includes(paths.config) ?? false;
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined; // Missing is an answer here.
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just ended by itself.
  }
}
