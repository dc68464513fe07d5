/**
 * Whether a process still gets anywhere. On a slow or loaded machine any fixed wait is too short for somebody: as long as
 * a process lives and is given processor time, it may be waited for.
 */
import { readFileSync } from 'node:fs';

/** Without processor time for so long, a process waits for something that does not come. */
const STALL_MS = 10_000;
/** Positions behind the name in /proc/PID/stat, see proc(5). */
const FIELDS = { state: 0, minorFaults: 7, majorFaults: 9, user: 11, system: 12 };
/** Stopped, traced, dead: nothing can be expected of these. */
const STUCK = new Set(['T', 't', 'X', 'Z']);
/** Waits for a disk, which may be slow as well. */
const DISK = 'D';

export class Progress {
  readonly #pid: number;
  readonly #stallMs: number;
  #marker = '';
  #movedAt = performance.now();

  constructor(pid: number, stallMs = STALL_MS) {
    this.#pid = pid;
    this.#stallMs = stallMs;
  }

  /** To be asked again and again while something is awaited of the process. */
  get isMoving(): boolean {
    const fields = statOf(this.#pid);
    const state = fields?.at(FIELDS.state) ?? 'X';
    if (fields === undefined || STUCK.has(state)) return false;
    const { minorFaults, majorFaults, user, system } = FIELDS;
    const marker = [minorFaults, majorFaults, user, system].map((index) => fields.at(index)).join(' ');
    if (marker !== this.#marker || state === DISK) this.#movedAt = performance.now();
    this.#marker = marker;
    return performance.now() - this.#movedAt < this.#stallMs;
  }

  /** A new wait begins: what was before it does not count. */
  restart(): void {
    this.#movedAt = performance.now();
  }
}

function statOf(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may contain anything.
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined; // It has ended.
  }
}
