/**
 * Runs `zfs` and `zpool`. A pool whose devices fail lets programs wait in the kernel, where nothing ends them, until
 * somebody helps it. Callers get an error then, and no further program is started while one of them waits.
 */
import { type EngineError, internal, unavailable } from '../../../errors/engine-error.js';
import type { ProgramResult } from '../../../sys/process/spawn.js';
import { KeyedLock } from '../../keyed-lock.js';

/** The programs say this of errors, and the code that the error has here. */
const ZFS_CODES: readonly (readonly [says: RegExp, code: string])[] = [
  [/dataset does not exist|no such pool/, 'ZFS_MISSING'],
  [/has children|dependent clones/, 'ZFS_HAS_CHILDREN'],
  [/is busy/, 'ZFS_BUSY'],
  [/out of space/, 'ENOSPC'],
  [/I\/O error|pool I\/O is currently suspended/, 'EIO'],
  [/read-only|read only/, 'EROFS'],
];

/** Programs that run at once. Each waits for the pool to write what it did, and most of that is one wait for all. */
const MAX_PROGRAMS = 4;
/** No sound pool takes as long for anything that is asked here. */
const LIMIT_MS = 10 * 60_000;

export type RunProgram = (program: string, args: readonly string[]) => Promise<ProgramResult>;

export class ZfsPrograms {
  readonly #run: RunProgram;
  readonly #slots = new KeyedLock();
  #next = 0;
  /** Commands that were given up and have not ended. */
  readonly #stuck = new Set<string>();

  constructor(run: RunProgram) {
    this.#run = run;
  }

  /**
   * Resolves with the output. @throws EngineError internal, with one of the codes if it is known why; unavailable with
   * the code ZFS_STUCK while a program does not end.
   */
  async run(program: string, args: readonly string[]): Promise<string> {
    this.#next = (this.#next + 1) % MAX_PROGRAMS;
    const command = `${program} ${args.join(' ')}`;
    const { stdout, stderr, exitCode } = await this.#slots.run(String(this.#next), () =>
      this.#inTime(command, () => this.#run(program, args)),
    );
    if (exitCode === 0) return stdout;
    throw zfsError(command, stderr.trim() || `it ended with status ${exitCode}`);
  }

  async #inTime(command: string, start: () => Promise<ProgramResult>): Promise<ProgramResult> {
    const [stuck] = this.#stuck;
    if (stuck !== undefined) throw noAnswer(stuck);
    const running = start();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.#stuck.add(command);
        const end = (): void => void this.#stuck.delete(command);
        running.then(end, end);
        reject(noAnswer(command));
      }, LIMIT_MS).unref();
    });
    return Promise.race([running, late]).finally(() => clearTimeout(timer));
  }
}

function noAnswer(command: string): EngineError {
  return unavailable(
    `${command} has not ended within ${LIMIT_MS / 60_000} minutes: see zpool status for what the pool waits for`,
    { code: 'ZFS_STUCK' },
  );
}

/** Makes the error for a program that failed. */
export function zfsError(command: string, said: string): EngineError {
  const code = ZFS_CODES.find(([says]) => says.test(said))?.[1];
  return internal(`${command}: ${said}`, code === undefined ? {} : { code });
}
