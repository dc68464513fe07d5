/** Detach keys: the key sequence with which a client leaves a terminal without ending what runs there. */

const DEFAULT_KEYS = 'ctrl-p,ctrl-q';
const CONTROL_SYMBOLS = '@abcdefghijklmnopqrstuvwxyz[\\]^_';

/**
 * Parses `ctrl-p,ctrl-q`, `a,b`, `DEL` into byte values; undefined and '' are the default keys. For a malformed text it
 * throws the error that `refuse` makes of it.
 */
export function parseDetachKeys(text: string | undefined, refuse: (text: string) => Error): Buffer {
  const keys = text === undefined || text === '' ? DEFAULT_KEYS : text;
  return Buffer.from(
    keys.split(',').map((key) => {
      if (/^[\x20-\x7e]$/.test(key)) return key.charCodeAt(0);
      if (key === 'DEL') return 127;
      const code =
        key.length === 6 && key.startsWith('ctrl-') ? CONTROL_SYMBOLS.indexOf(key.slice(5).toLowerCase()) : -1;
      if (code === -1) throw refuse(keys);
      return code;
    }),
  );
}

/** Finds the sequence in what a client types, even if it spans chunks, and removes it. */
export class DetachScanner {
  #matched = 0;

  constructor(private readonly keys: Buffer) {}

  /** Returns the bytes to pass on, and whether the sequence was completed; nothing after it is passed on. */
  push(chunk: Buffer): { readonly data: Buffer; readonly detached: boolean } {
    if (this.#matched === 0 && !chunk.includes(this.keys[0] ?? 0)) return { data: chunk, detached: false };
    const held = this.#matched;
    const typed = Buffer.concat([this.keys.subarray(0, held), chunk]);
    for (let at = held; at < typed.length; at++) {
      // If the byte does not continue the sequence, a later beginning of it may still be in what was held back.
      while (this.#matched > 0 && typed[at] !== this.keys[this.#matched]) this.#matched = this.#shorter(this.#matched);
      if (typed[at] === this.keys[this.#matched]) this.#matched++;
      if (this.#matched === this.keys.length)
        return { data: typed.subarray(0, at + 1 - this.#matched), detached: true };
    }
    return { data: typed.subarray(0, typed.length - this.#matched), detached: false };
  }

  /**
   * Returns the length of the longest beginning of the sequence that ends its first `length` bytes without being all of
   * them.
   */
  #shorter(length: number): number {
    let shorter = length - 1;
    while (!this.keys.subarray(0, shorter).equals(this.keys.subarray(length - shorter, length))) shorter--;
    return shorter;
  }
}
