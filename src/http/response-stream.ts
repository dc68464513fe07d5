/** The body of a streamed reply. */

export interface ResponseStream {
  /** True once the stream ended or the client went away: nothing more is sent. */
  readonly closed: boolean;
  /**
   * Sends a piece; the bytes must not change afterwards. Returns false when the client is behind: await `ready` before
   * the next piece. A writer that goes on regardless is cut off at 8 MiB. Writes after the close are dropped.
   * @param onSent called when the bytes may change, if that comes to be known.
   */
  write(chunk: string | Uint8Array, onSent?: () => void): boolean;
  /** Resolves when the client caught up. @throws EngineError cancelled when it went away. */
  ready(): Promise<void>;
  /**
   * Lends the connection to another thread, which sends the next pieces of the body by itself, each as a chunk of
   * HTTP/1.1; what was written before has been sent. The descriptor is a duplicate for the caller to close, and nothing
   * may be written here until then. Resolves with undefined where there is none to lend.
   * @throws EngineError cancelled as `ready`.
   */
  lend(): Promise<number | undefined>;
  /** Ends the body. Idempotent. */
  end(): void;
  /** Cuts the connection so that the client sees an incomplete body. Idempotent. */
  abort(): void;
  /** Calls back once when the stream is closed, whoever closed it. */
  onClose(callback: () => void): void;
}

interface PumpEvents<Piece> {
  /** Called before the end of the stream. */
  readonly onEnd?: () => void;
  /** Called when a piece is not needed any more, if that comes to be known. */
  readonly onSent?: (piece: Piece) => void;
}

/**
 * Sends a source to its end, at the client's speed, and ends the stream. When the client goes away the source's
 * `return` is called at once, which must settle a pending `next`; pump then resolves. An error of the source is thrown.
 */
export async function pump<Piece extends string | Uint8Array>(
  source: AsyncIterable<Piece>,
  stream: ResponseStream,
  { onEnd, onSent }: PumpEvents<Piece> = {},
): Promise<void> {
  const iterator = source[Symbol.asyncIterator]();
  // A failing `return` has nobody left to tell: the client is gone or has everything.
  const release = () => void iterator.return?.().catch(() => undefined);
  stream.onClose(release);
  try {
    while (!stream.closed) {
      const next = await iterator.next();
      if (next.done === true) break;
      const piece = next.value;
      if (!stream.write(piece, onSent && (() => onSent(piece)))) await stream.ready();
    }
  } catch (error) {
    if (!stream.closed) throw error;
  }
  onEnd?.();
  stream.end();
}
