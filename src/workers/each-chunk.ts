/**
 * Hands the chunks of a stream to a function. An iteration makes several promises for each chunk, and the functions
 * behind it are so many that V8 compiles for longer than they run; here there is a promise only when the taker is busy.
 */
import { finished, type Readable } from 'node:stream';

/** Takes a chunk. Returns false to end; a promise holds the stream up. */
export type TakeChunk = (chunk: Buffer) => boolean | Promise<boolean>;

/**
 * Resolves at the end of the stream, or when `take` wants no more; the stream is destroyed then. Rejects with what
 * `take` throws, and with what `broken` makes of an error of the stream, but never before `take` is done with the last
 * chunk.
 */
export async function eachChunk(stream: Readable, take: TakeChunk, broken: (error: unknown) => Error): Promise<void> {
  let taken: Promise<unknown> | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      const goOn = (isWanted: boolean): void => {
        taken = undefined;
        if (isWanted) stream.resume();
        else resolve();
      };
      const hand = (chunk: Buffer): void => {
        const result = take(chunk);
        if (result === true) return;
        stream.pause();
        if (result === false) return resolve();
        taken = result;
        result.then(goOn, reject);
      };
      finished(stream, { writable: false }, (error) => (error ? reject(broken(error)) : resolve()));
      stream.on('data', (chunk: Buffer) => {
        try {
          hand(chunk);
        } catch (error) {
          stream.pause();
          reject(error);
        }
      });
    });
  } finally {
    stream.destroy();
    await taken;
  }
}
