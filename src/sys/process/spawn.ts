/**
 * Runs small programs to their end. Node's own spawn copies the page tables of this process on the main thread, which
 * takes 10 ms when it is large; posix_spawn(3) on a thread of the pool shares them until exec.
 */
import { closeSync, readSync, writeSync } from 'node:fs';
import koffi from 'koffi';
import { internal, type EngineError } from '../../errors/engine-error.js';
import { libc, syscallError } from '../ffi/libc.js';
import { memoryFile } from './memory-file.js';
import { openPidfd } from './pidfd.js';

// sys/wait.h
const WNOHANG = 1;
/** More than any C library's posix_spawn_file_actions_t and posix_spawnattr_t. */
const ACTIONS_BYTES = 512;
const ATTRIBUTES_BYTES = 512;
const POSIX_SPAWN_SETSIGMASK = 8;
const POSIX_SPAWN_SETSID = 0x80;
const SIGSET_BYTES = 128;
const READ_BYTES = 1 << 16;

const actionsInit = libc.func<[actions: Buffer]>('int posix_spawn_file_actions_init(void *actions)');
const actionsDup2 = libc.func<[actions: Buffer, fd: number, newFd: number]>(
  'int posix_spawn_file_actions_adddup2(void *actions, int fd, int newfd)',
);
const actionsDestroy = libc.func<[actions: Buffer]>('int posix_spawn_file_actions_destroy(void *actions)');
const attributesInit = libc.func<[attributes: Buffer]>('int posix_spawnattr_init(void *attributes)');
const attributesFlags = libc.func<[attributes: Buffer, flags: number]>(
  'int posix_spawnattr_setflags(void *attributes, short flags)',
);
const attributesSigmask = libc.func<[attributes: Buffer, set: Buffer]>(
  'int posix_spawnattr_setsigmask(void *attributes, const void *set)',
);
const spawnLater = libc.async<
  [
    pid: Buffer,
    file: string,
    actions: Buffer,
    attributes: Buffer,
    argv: readonly (string | null)[],
    envp: readonly (string | null)[],
  ]
>(
  'posix_spawnp',
  'int posix_spawnp(void *pid, const char *file, const void *actions, const void *attributes, ' +
    'const char **argv, const char **envp)',
);
const waitpid = libc.checked<[pid: number, status: Buffer, options: number]>(
  'waitpid',
  'int waitpid(int pid, void *status, int options)',
);

/** The child's signals are those of a new process: the pool's threads have all of them blocked. */
function attributesWith(flags: number): Buffer {
  const attributes = Buffer.alloc(ATTRIBUTES_BYTES);
  attributesInit(attributes);
  attributesFlags(attributes, POSIX_SPAWN_SETSIGMASK | flags);
  attributesSigmask(attributes, Buffer.alloc(SIGSET_BYTES));
  return attributes;
}

const ofGroup = attributesWith(0);
const ofOwnSession = attributesWith(POSIX_SPAWN_SETSID);

export interface ProgramResult {
  readonly stdout: string;
  readonly stderr: string;
  /** The code as in a shell: 128 plus the signal for a program that was killed. */
  readonly exitCode: number;
}

/**
 * Runs a program with `input` as its standard input, in the namespaces of this process. Both outputs must fit in
 * memory.
 * @throws EngineError code ENOENT when there is no such program, EAGAIN, ENOMEM.
 */
export async function runProgram(file: string, args: readonly string[], input = ''): Promise<ProgramResult> {
  const fds: number[] = [];
  const open = (name: string): number => {
    const fd = memoryFile(name);
    fds.push(fd);
    return fd;
  };
  try {
    const [stdin, stdout, stderr] = [open('stdin'), open('stdout'), open('stderr')];
    if (input !== '') writeAll(stdin, Buffer.from(input));
    const exitCode = await ended(await spawnProgram(file, args, { stdio: [stdin, stdout, stderr] }));
    return { stdout: readAll(stdout), stderr: readAll(stderr), exitCode };
  } finally {
    for (const fd of fds) closeSync(fd);
  }
}

export interface SpawnOptions {
  /** Descriptors that the program has as 0, 1, 2 and so on. */
  readonly stdio: readonly number[];
  /** Signals for the group of this process, as those of a terminal, do not reach it then. */
  readonly hasOwnSession?: boolean;
}

/**
 * Starts a program and returns its process ID. The caller waits for its end, else it stays a zombie.
 * @throws EngineError as `runProgram`.
 */
export async function spawnProgram(file: string, args: readonly string[], options: SpawnOptions): Promise<number> {
  const attributes = options.hasOwnSession === true ? ofOwnSession : ofGroup;
  const actions = Buffer.alloc(ACTIONS_BYTES);
  const pid = Buffer.alloc(4);
  actionsInit(actions);
  try {
    options.stdio.forEach((fd, target) => actionsDup2(actions, fd, target));
    const environment = Object.entries(process.env).map(([name, value]) => `${name}=${value ?? ''}`);
    const errno = await spawnLater(pid, file, actions, attributes, [file, ...args, null], [...environment, null]);
    if (errno !== 0) throw explained(file, syscallError('posix_spawnp', errno));
  } finally {
    actionsDestroy(actions);
  }
  return pid.readInt32LE(0);
}

function explained(file: string, error: EngineError): EngineError {
  return internal(
    error.code === 'ENOENT' ? `the program ${file} is not installed` : `${file} cannot be started: ${error.message}`,
    { ...(error.code === undefined ? {} : { code: error.code }), cause: error },
  );
}

async function ended(pid: number): Promise<number> {
  const pidfd = openPidfd(pid);
  await new Promise<void>((resolve) => void onEnd(pidfd, resolve));
  return takeStatus(pid);
}

/** Watches of processes that have not ended. */
const watches = new Set<ReturnType<typeof koffi.node.poll>>();
// An end that is reported while Node takes itself apart would abort this process.
process.on('exit', () => {
  for (const watch of watches) watch.close();
});

/** Calls `report` when the process of a descriptor has ended, and closes the descriptor before. */
export function onEnd(pidfd: number, report: () => void): ReturnType<typeof koffi.node.poll> {
  const handle = koffi.node.poll(pidfd, { readable: true }, () => {
    watches.delete(handle);
    handle.close();
    closeSync(pidfd);
    report();
  });
  watches.add(handle);
  return handle;
}

/** Returns the exit code of a child that has ended, which is no zombie any more then. */
export function takeStatus(pid: number): number {
  const status = Buffer.alloc(4);
  waitpid(pid, status, WNOHANG);
  const word = status.readInt32LE(0);
  const signal = word & 0x7f;
  return signal === 0 ? (word >> 8) & 0xff : 128 + signal;
}

function writeAll(fd: number, data: Buffer): void {
  for (let at = 0; at < data.length;) at += writeSync(fd, data, at, data.length - at, at);
}

function readAll(fd: number): string {
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const chunk = Buffer.alloc(READ_BYTES);
    const count = readSync(fd, chunk, 0, chunk.length, at);
    if (count === 0) return Buffer.concat(chunks).toString();
    chunks.push(chunk.subarray(0, count));
    at += count;
  }
}
