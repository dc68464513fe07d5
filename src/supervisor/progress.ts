/**
 * Tells whether a process still makes progress. On a slow or loaded machine any fixed wait may be too short: as long as
 * a process lives and is given processor time, callers may wait for it.
 */
import { readFileSync } from 'node:fs';

/** A process without processor time for so long waits for something that does not come. */
const STALL_MS = 10_000;
/** Positions behind the name in /proc/PID/stat, see proc(5). */
const FIELDS = { state: 0, minorFaults: 7, majorFaults: 9, user: 11, system: 12 };
/** A process that is stopped, traced or dead will not answer. */
const STUCK = new Set(['T', 't', 'X', 'Z']);
/** This process waits for a disk, which may be slow as well. */
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

  /** Callers ask this again and again while they wait for the process. */
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

  /** Begins a new wait: earlier progress does not count. */
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
