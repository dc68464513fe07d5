/** How a library inflates gzip, in threads of libuv. */

/** A step used so many bytes of its input, and made so many. */
export interface InflateStep {
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** The member of the gzip file has ended: what follows may be another one. */
  readonly isEnd: boolean;
}

/**
 * Node's own stream makes a buffer for each piece of output, which is faulted in, collected and unmapped again; here
 * the caller gives one, and uses it again.
 */
export interface Inflater {
  /**
   * Inflates what it can. Neither buffer may be touched until the promise is settled, and there is one step at a time.
   * There is more to come while the output is filled, be there input or not. Rejects for damaged data; that was the
   * last step.
   */
  step(input: Buffer, output: Buffer): Promise<InflateStep>;
  /** Begins another member. */
  reset(): void;
  /** Gives back its memory; not while there is a step. Idempotent. */
  free(): void;
}

/** @param hasDigest if true, a digest tells what is damaged: the sum of gzip, which costs time, is not made. */
export type MakeInflater = (hasDigest: boolean) => Inflater;
