/**
 * The progress of one pull: the job writes it, and any number of clients read it at their own speed. A reader that is
 * behind gets only the newest message of each layer and status, so that the text that is held is bounded by the number
 * of layers, whatever the number and the speed of the readers. A reader that comes late first gets the newest message
 * of each layer.
 */
/**
 * At most this many readers are woken at once; further ones wait a millisecond each, so that they do not hold each
 * other up.
 */
const PROMPT_READERS = 16;
const MAX_DELAY_MS = 1000;

/** `Fact` is what the job tells; `encode` makes text of it, once for all readers. */
export class ProgressBoard<Fact> {
  readonly #encode: (fact: Fact) => string;
  /** Texts for a late reader: one per subject, in the order of the subjects' first messages. */
  readonly #newest = new Map<string, string>();
  /** The newest message of each subject and status with its number, the latest last. */
  readonly #messages = new Map<string, { readonly number: number; readonly text: string }>();
  /** Readers, each with a callback for when it needs nothing more. */
  readonly #readers = new Map<BoardReader, () => void>();
  #lines = 0;
  #count = 0;
  #outcome: Outcome | undefined;
  #timer: NodeJS.Timeout | undefined;
  /**
   * The text for late readers that was put together last: readers that come or go on at the same time all ask for the
   * same one.
   */
  #opening: string | undefined;
  #latest = { from: 0, to: 0, text: '' };

  constructor(encode: (fact: Fact) => string) {
    this.#encode = encode;
  }

  /**
   * Publishes a message about a layer (or anything else that has a state): it replaces the subject's earlier ones for
   * late readers.
   */
  publish(subject: string, status: string, fact: Fact): void {
    if (this.#outcome !== undefined) return;
    const text = this.#encode(fact);
    this.#newest.set(subject, text);
    this.#opening = undefined;
    const key = `${subject} ${status}`;
    // The message moves to the end, so that a layer's statuses stay in their order.
    this.#messages.delete(key);
    this.#messages.set(key, { number: ++this.#count, text });
    this.#wake();
  }

  #wake(): void {
    if (this.#readers.size <= PROMPT_READERS) for (const reader of this.#readers.keys()) reader.wake();
    else
      this.#timer ??= setTimeout(
        () => {
          this.#timer = undefined;
          for (const reader of this.#readers.keys()) reader.wake();
        },
        Math.min(this.#readers.size, MAX_DELAY_MS),
      );
  }

  /** Adds a message that every reader gets, late or not. */
  say(fact: Fact): void {
    const line = `line-${this.#lines++}`;
    this.publish(line, '', fact);
  }

  /**
   * Ends the board: nothing more will come. Readers finish when they have read the rest, and then know how the work
   * ended.
   */
  end(outcome: Outcome = 'done'): void {
    this.#outcome = outcome;
    clearTimeout(this.#timer);
    const readers = [...this.#readers];
    this.#readers.clear();
    for (const [reader, onClose] of readers) {
      reader.finish(outcome);
      onClose();
    }
  }

  /**
   * Makes a reader that starts with the newest of everything. `onClose` is called once, when the reader stops or
   * nothing more will come.
   */
  read(onClose: () => void): BoardReader {
    this.#opening ??= [...this.#newest.values()].join('');
    const reader: BoardReader = new BoardReader(
      { to: this.#count, text: this.#opening },
      (from) => this.#after(from),
      () => {
        if (this.#readers.delete(reader)) onClose();
      },
    );
    if (this.#outcome === undefined) this.#readers.set(reader, onClose);
    else {
      reader.finish(this.#outcome);
      onClose();
    }
    return reader;
  }

  #after(from: number): BoardText {
    if (this.#latest.from !== from || this.#latest.to !== this.#count) {
      const texts = [...this.#messages.values()].filter(({ number }) => number > from).map(({ text }) => text);
      this.#latest = { from, to: this.#count, text: texts.join('') };
    }
    return this.#latest;
  }
}

/** How the work ended that a board shows. */
export type Outcome = 'done' | 'failed';

/** Messages one after the other, and the number of the last one. */
interface BoardText {
  readonly to: number;
  readonly text: string;
}

/** One reader's place. It yields all that is pending as one text. */
export class BoardReader implements AsyncIterableIterator<string> {
  readonly #after: (from: number) => BoardText;
  readonly #onClose: () => void;
  #opening: string;
  /** Number of the last message that the reader had. */
  #at: number;
  #wake: (() => void) | undefined;
  #outcome: Outcome | undefined;
  #isClosed = false;

  /** @param after returns the text that came after the message of a number. */
  constructor(opening: BoardText, after: (from: number) => BoardText, onClose: () => void) {
    this.#opening = opening.text;
    this.#at = opening.to;
    this.#after = after;
    this.#onClose = onClose;
  }

  /** Lets a waiting `next` take what is pending. */
  wake(): void {
    this.#wake?.();
  }

  /** How the work ended; undefined as long as it goes on. */
  get outcome(): Outcome | undefined {
    return this.#outcome;
  }

  finish(outcome: Outcome): void {
    this.#outcome = outcome;
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<string>> {
    while (!this.#isClosed) {
      const { to, text } = this.#after(this.#at);
      const value = this.#opening + text;
      this.#at = to;
      this.#opening = '';
      if (value !== '') return { done: false, value };
      if (this.#outcome !== undefined) break;
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = undefined;
    }
    return { done: true, value: undefined };
  }

  /** Called when the client is gone: settles a pending `next` and tells the board's owner. */
  async return(): Promise<IteratorResult<string>> {
    this.#isClosed = true;
    this.#wake?.();
    this.#onClose();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
