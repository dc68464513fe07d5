/**
 * Changes the files of a container all the time, as an attacker inside could. A shell in the container would start a
 * program for each step: that takes all the processor time that it gets, and swaps less often.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** A change of an absolute path of the container; the target of a link is written as it is. */
export type Step =
  | { readonly do: 'move' | 'link'; readonly path: string; readonly to: string }
  | { readonly do: 'make' | 'remove'; readonly path: string };

const PROGRAM = fileURLToPath(new URL('swapping-process.js', import.meta.url));

export class Swapping {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  #hundreds = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#exit = once(child, 'exit');
    child.stdout?.on('data', (bytes: Buffer) => (this.#hundreds += bytes.length));
  }

  /** @param pid of a process in the container. Resolves when the files change. */
  static async begin(pid: number, steps: readonly Step[]): Promise<Swapping> {
    // It does not outlive this process.
    const args = ['--pdeathsig', 'KILL', process.execPath, PROGRAM, String(pid), JSON.stringify(steps)];
    const child = spawn('setpriv', args, {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const swapping = new Swapping(child);
    await Promise.race([once(child.stdout, 'data'), swapping.#exit]);
    return swapping;
  }

  /** Ends the changes. Throws when there were hardly any, or they ended by themselves. */
  async end(): Promise<void> {
    assert.equal(this.#child.exitCode, null, 'files are still swapped');
    this.#child.kill('SIGKILL');
    await this.#exit;
    assert.ok(this.#hundreds > 1, 'the files were swapped hundreds of times');
  }
}
