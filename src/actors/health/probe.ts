/** One probe: a command run in the container by way of exec, its output kept up to a limit. */
import { Writable } from 'node:stream';
import { messageOf } from '../../errors/engine-error.js';
import type { ContainerRecord } from '../container/container.record.js';
import type { ProbePlan, ProbeResult } from '../container/life/health.js';
import { now } from '../container/streams/timestamps.js';
import type { ExecDirectory } from '../exec/directory.js';

const OUTPUT_BYTES = 4096;
const FAILED = -1;

/**
 * Runs the plan's command with the container's user, directory and environment. Whatever fails gives a result with exit
 * code -1. When `signal` aborts, the process is killed and the promise settles at once.
 * @param onStarted is told how long the start of the process took.
 */
export async function runProbe(
  execs: ExecDirectory,
  container: ContainerRecord,
  plan: ProbePlan,
  signal: AbortSignal,
  onStarted: (seconds: number) => void,
): Promise<ProbeResult> {
  const start = now();
  const result = (exitCode: number, output: string): ProbeResult => ({ start, end: now(), exitCode, output });
  const output = new LimitedOutput();
  let id: string | undefined;
  try {
    signal.throwIfAborted();
    id = execs.create(container, {
      AttachStdin: false,
      AttachStdout: true,
      AttachStderr: true,
      Tty: false,
      Cmd: plan.argv,
      Env: [],
      Privileged: false,
      User: '',
      WorkingDir: '',
      DetachKeys: '',
      ConsoleSize: null,
    }).id;
    execs.hub(id).subscribe({ stdout: true, stderr: true, multiplexed: false }, output);
    // The time that the start takes does not count for the timeout of the probe.
    const begunMs = performance.now();
    await execs.start(id, { tty: false, size: undefined }, signal);
    onStarted((performance.now() - begunMs) / 1000);
    const timeout = AbortSignal.timeout(plan.timeoutMs);
    const exitCode = await execs.wait(id, AbortSignal.any([signal, timeout])).catch((error: unknown) => {
      if (timeout.aborted && !signal.aborted) return undefined;
      throw error;
    });
    if (exitCode !== undefined) return result(exitCode, output.text);
    const text = output.text;
    return result(
      FAILED,
      `Health check exceeded timeout (${goDuration(plan.timeoutMs)})${text === '' ? '' : `: ${text}`}`,
    );
  } catch (error) {
    return result(FAILED, messageOf(error));
  } finally {
    if (id !== undefined) void execs.discard(id);
  }
}

/** Keeps the first bytes that a process prints. It reads and drops the rest, so that the process can go on. */
class LimitedOutput extends Writable {
  readonly #chunks: Buffer[] = [];
  #kept = 0;
  #isCut = false;

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const room = OUTPUT_BYTES - this.#kept;
    if (chunk.length > room) this.#isCut = true;
    if (room > 0) {
      this.#chunks.push(Buffer.from(chunk.subarray(0, room)));
      this.#kept += Math.min(room, chunk.length);
    }
    done();
  }

  get text(): string {
    return `${Buffer.concat(this.#chunks).toString()}${this.#isCut ? '...' : ''}`;
  }
}

/** Renders a duration as the messages of the known engine have it: `1m30s`, `30s`, `1.5s`, `200ms`. */
function goDuration(ms: number): string {
  if (ms < 1000) return `${ms}ms`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  return `${hours > 0 ? `${hours}h` : ''}${hours + minutes > 0 ? `${minutes}m` : ''}${(ms % 60_000) / 1000}s`;
}
