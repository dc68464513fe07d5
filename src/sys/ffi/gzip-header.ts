/**
 * Passes over the header of a gzip member, which may come in pieces. ISA-L's own reader forgets between two pieces
 * which fields are to come.
 */
const MAGIC = 0x8b1f;
const DEFLATE = 8;
/** Bits of the flags. */
const HAS_SUM = 2;
const HAS_EXTRA = 4;
const HAS_NAME = 8;
const HAS_COMMENT = 16;
const RESERVED = 0xe0;
/** Before the fields that the flags tell of. */
const BASE_BYTES = 10;

/** Returns the sum of what had the sum `before` and of these bytes behind it. */
type Sum = (before: number, bytes: Buffer) => number;
type Stage = 'base' | 'extraLength' | 'extra' | 'name' | 'comment' | 'sum' | 'done';

export class GzipHeader {
  readonly #sum: Sum | undefined;
  readonly #field = Buffer.alloc(BASE_BYTES);
  #fieldBytes = 0;
  #stage: Stage = 'base';
  #flags = 0;
  #extraBytes = 0;
  #summed = 0;

  /** @param sum if undefined, the header's own sum is not checked. */
  constructor(sum: Sum | undefined) {
    this.#sum = sum;
  }

  get isDone(): boolean {
    return this.#stage === 'done';
  }

  /** Returns how many bytes of this piece belong to the header. Throws for what is none. */
  take(piece: Buffer): number {
    let at = 0;
    while (at < piece.length && !this.isDone) {
      const stage = this.#stage;
      const end = this.#advance(piece, at);
      // Which flags there are is known behind the first field, and nothing but that is lost if there is no sum.
      if (this.#sum && stage !== 'sum') this.#summed = this.#sum(this.#summed, piece.subarray(at, end));
      at = end;
    }
    return at;
  }

  /** Returns where the next stage begins, or the end of the piece. */
  #advance(piece: Buffer, at: number): number {
    switch (this.#stage) {
      case 'base':
        return this.#fill(piece, at, BASE_BYTES, () => this.#afterBase());
      case 'extraLength':
        return this.#fill(piece, at, 2, () => {
          this.#extraBytes = this.#field.readUInt16LE();
          this.#stage = this.#extraBytes > 0 ? 'extra' : this.#afterExtra();
        });
      case 'extra': {
        const count = Math.min(this.#extraBytes, piece.length - at);
        this.#extraBytes -= count;
        if (this.#extraBytes === 0) this.#stage = this.#afterExtra();
        return at + count;
      }
      case 'name':
        return this.#passText(piece, at, () => this.#afterName());
      case 'comment':
        return this.#passText(piece, at, () => this.#afterComment());
      default:
        return this.#fill(piece, at, 2, () => {
          if (this.#sum && this.#field.readUInt16LE() !== (this.#summed & 0xffff))
            throw new Error('gzip: the header has another checksum');
          this.#stage = 'done';
        });
    }
  }

  #fill(piece: Buffer, at: number, wanted: number, whenFull: () => void): number {
    const count = piece.copy(this.#field, this.#fieldBytes, at, at + wanted - this.#fieldBytes);
    this.#fieldBytes += count;
    if (this.#stage === 'base') this.#checkBase();
    if (this.#fieldBytes === wanted) {
      this.#fieldBytes = 0;
      whenFull();
    }
    return at + count;
  }

  #passText(piece: Buffer, at: number, atEnd: () => Stage): number {
    const end = piece.indexOf(0, at);
    if (end < 0) return piece.length;
    this.#stage = atEnd();
    return end + 1;
  }

  /** Tells at the first wrong byte, for no more may come. */
  #checkBase(): void {
    const field = this.#field;
    if (this.#fieldBytes >= 2 && field.readUInt16LE() !== MAGIC) throw new Error('gzip: invalid header');
    if (this.#fieldBytes >= 4 && (field.readUInt8(2) !== DEFLATE || (field.readUInt8(3) & RESERVED) !== 0))
      throw new Error('gzip: unknown compression method or flags');
  }

  #afterBase(): void {
    this.#flags = this.#field.readUInt8(3);
    this.#stage = this.#flags & HAS_EXTRA ? 'extraLength' : this.#afterExtra();
  }

  #afterExtra(): Stage {
    return this.#flags & HAS_NAME ? 'name' : this.#afterName();
  }

  #afterName(): Stage {
    return this.#flags & HAS_COMMENT ? 'comment' : this.#afterComment();
  }

  #afterComment(): Stage {
    return this.#flags & HAS_SUM ? 'sum' : 'done';
  }
}
