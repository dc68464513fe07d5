/**
 * The progress of one pull, written by the job and read by any number of clients at their own speed. A reader that is
 * behind gets only the newest message of each layer and status, so that what is held for it is bounded by the number of
 * layers, whatever its speed; one that comes late first gets the newest message of each layer.
 */
import { encodeMessage, type ProgressMessage } from './progress.js';

/** So many readers are woken at once; more of them wait a little for each other's sake, a millisecond each. */
const PROMPT_READERS = 16;
const MAX_DELAY_MS = 1000;

export class ProgressBoard {
  /** What a late reader needs: one text per subject, in the order of the subjects' first messages. */
  readonly #newest = new Map<string, string>();
  readonly #readers = new Set<BoardReader>();
  #lines = 0;
  #isEnded = false;
  #timer: NodeJS.Timeout | undefined;

  /** A message about a layer (or anything else that has a state): it replaces the subject's earlier ones for late readers. */
  publish(subject: string, status: string, message: ProgressMessage): void {
    if (this.#isEnded) return;
    const text = encodeMessage(message);
    this.#newest.set(subject, text);
    for (const reader of this.#readers) reader.push(`${subject} ${status}`, text);
    this.#wake();
  }

  #wake(): void {
    if (this.#readers.size <= PROMPT_READERS) for (const reader of this.#readers) reader.wake();
    else this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const reader of this.#readers) reader.wake();
    }, Math.min(this.#readers.size, MAX_DELAY_MS));
  }

  /** A message that every reader gets, late or not. */
  say(message: ProgressMessage): void {
    const line = `line-${this.#lines++}`;
    this.publish(line, '', message);
  }

  /** Nothing more will come; readers end when they have read what there is. */
  end(): void {
    this.#isEnded = true;
    clearTimeout(this.#timer);
    for (const reader of this.#readers) reader.finish();
    this.#readers.clear();
  }

  /** Starts with the newest of everything. `onClose` is called once when the reader stops before the end. */
  read(onClose: () => void): BoardReader {
    const reader: BoardReader = new BoardReader(() => {
      if (this.#readers.delete(reader)) onClose();
    });
    for (const [subject, text] of this.#newest) reader.push(subject, text);
    if (this.#isEnded) reader.finish();
    else this.#readers.add(reader);
    return reader;
  }
}

/** One reader's place. Yields all that is pending as one text. */
export class BoardReader implements AsyncIterableIterator<string> {
  readonly #pending = new Map<string, string>();
  readonly #onClose: () => void;
  #wake: (() => void) | undefined;
  #isFinished = false;

  constructor(onClose: () => void) {
    this.#onClose = onClose;
  }

  push(key: string, text: string): void {
    // Moved to the end, so that a layer's statuses stay in their order.
    this.#pending.delete(key);
    this.#pending.set(key, text);
  }

  /** Lets a waiting `next` take what is pending. */
  wake(): void {
    this.#wake?.();
  }

  finish(): void {
    this.#isFinished = true;
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<string>> {
    while (this.#pending.size === 0 && !this.#isFinished) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = undefined;
    }
    if (this.#pending.size === 0) return { done: true, value: undefined };
    const value = [...this.#pending.values()].join('');
    this.#pending.clear();
    return { done: false, value };
  }

  /** The client is gone: settles a pending `next` and tells the board's owner. */
  async return(): Promise<IteratorResult<string>> {
    this.#pending.clear();
    this.finish();
    this.#onClose();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
