/** Task: runs git without a shell, in a process group of its own, which ends with the task. */
import { type ChildProcess, spawn } from 'node:child_process';
import type { MessagePort } from 'node:worker_threads';
import { internal, unavailable } from '../../errors/engine-error.js';
import { TaskLink } from '../../workers/task-link.js';

export interface RunGitInput {
  readonly args: readonly string[];
  readonly directory: string;
  readonly variables: Readonly<Record<string, string>>;
  readonly port: MessagePort;
}

/** Output of git, as it comes. */
export interface RunGitReport {
  readonly type: 'output';
  readonly stream: 1 | 2;
  readonly bytes: Uint8Array;
}

export interface RunGitOutput {
  readonly stdout: string;
  /** The end of it. */
  readonly stderr: string;
  /** 128 plus the signal for a process that was killed. */
  readonly exitCode: number;
}

const MAX_STDOUT_BYTES = 4 << 20;
const MAX_STDERR_CHARS = 8 << 10;
/** A server may make git talk for ever; clients are shown so much of it. */
const MAX_SHOWN_BYTES = 1 << 20;
const KILLED = 137;

/** @throws EngineError unavailable, code NO_GIT, when git is not installed; cancelled. */
export async function runGit({ args, directory, variables, port }: RunGitInput): Promise<RunGitOutput> {
  const link = new TaskLink<RunGitReport>(port);
  try {
    link.signal.throwIfAborted();
    const stdio: ['ignore', 'pipe', 'pipe'] = ['ignore', 'pipe', 'pipe'];
    const child = spawn('git', args, { cwd: directory, env: variables, stdio, detached: true });
    const kill = (): void => killGroup(child);
    link.signal.addEventListener('abort', kill, { once: true });
    const result = await outputOf(child, link);
    link.signal.throwIfAborted();
    return result;
  } finally {
    link.close();
  }
}

/** Git has helpers that speak with servers; they would go on without it. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

function outputOf(child: ChildProcess, link: TaskLink<RunGitReport>): Promise<RunGitOutput> {
  const stdout: Buffer[] = [];
  let stdoutBytes = 0;
  let stderr = '';
  let shownBytes = 0;
  const show = (stream: 1 | 2, bytes: Buffer): void => {
    shownBytes += bytes.length;
    if (shownBytes <= MAX_SHOWN_BYTES) link.report({ type: 'output', stream, bytes: Uint8Array.from(bytes) });
  };
  child.stdout?.on('data', (bytes: Buffer) => {
    stdoutBytes += bytes.length;
    if (stdoutBytes > MAX_STDOUT_BYTES) return killGroup(child);
    stdout.push(bytes);
    show(1, bytes);
  });
  child.stderr?.on('data', (bytes: Buffer) => {
    stderr = (stderr + bytes.toString()).slice(-MAX_STDERR_CHARS);
    show(2, bytes);
  });
  return new Promise((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => reject(startFailure(error)));
    child.once('close', (code) =>
      resolve({ stdout: Buffer.concat(stdout).toString(), stderr, exitCode: code ?? KILLED }),
    );
  });
}

function startFailure(error: NodeJS.ErrnoException): Error {
  if (error.code !== 'ENOENT') return internal(`git cannot be started: ${error.message}`, { cause: error });
  return unavailable(
    'git is not installed where the engine runs, so it cannot build from repositories ' +
      '(exec: "git": executable file not found in $PATH)',
    { code: 'NO_GIT', cause: error },
  );
}
