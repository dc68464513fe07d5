/** Detach keys: the key sequence with which a client leaves a terminal without ending what runs there. */

const DEFAULT_KEYS = 'ctrl-p,ctrl-q';
const CONTROL_SYMBOLS = '@abcdefghijklmnopqrstuvwxyz[\\]^_';

/**
 * Parses `ctrl-p,ctrl-q`, `a,b`, `DEL` into byte values; undefined and '' are the default keys. Throws what `refuse`
 * makes of the text when it is malformed.
 */
export function parseDetachKeys(text: string | undefined, refuse: (text: string) => Error): Buffer {
  const keys = text === undefined || text === '' ? DEFAULT_KEYS : text;
  return Buffer.from(
    keys.split(',').map((key) => {
      if (/^[\x20-\x7e]$/.test(key)) return key.charCodeAt(0);
      if (key === 'DEL') return 127;
      const code = key.length === 6 && key.startsWith('ctrl-') ? CONTROL_SYMBOLS.indexOf(key.slice(5).toLowerCase()) : -1;
      if (code === -1) throw refuse(keys);
      return code;
    }),
  );
}

/** Finds the sequence in what a client types, also across chunks, and swallows it. */
export class DetachScanner {
  #matched = 0;

  constructor(private readonly keys: Buffer) {}

  /** What is to be passed on, and whether the sequence was completed; then nothing after it is passed on. */
  push(chunk: Buffer): { readonly data: Buffer; readonly detached: boolean } {
    const out: number[] = [];
    for (const byte of chunk) {
      if (byte === this.keys[this.#matched]) {
        this.#matched++;
        if (this.#matched === this.keys.length) return { data: Buffer.from(out), detached: true };
        continue;
      }
      // What looked like the sequence was ordinary input: it is late, not lost.
      for (let i = 0; i < this.#matched; i++) out.push(this.keys[i] ?? 0);
      this.#matched = byte === this.keys[0] ? 1 : 0;
      if (this.#matched === 0) out.push(byte);
    }
    return { data: Buffer.from(out), detached: false };
  }
}
