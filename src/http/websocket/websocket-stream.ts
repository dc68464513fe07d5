/** A WebSocket as a stream of bytes: reading gives what a client sends in messages, and writing sends frames. */
import { Duplex } from 'node:stream';
import type { ClientSocket } from '../client-socket.js';
import { CloseCode, closeFrame, controlFrame, frame, FrameParser, Opcode } from './frames.js';

/** A client that sends pings and does not read the answers is cut off when this many bytes wait. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
/** The client has this long to close its side after ours. */
const LINGER_MS = 5_000;

export class WebSocketStream extends Duplex {
  readonly #socket: ClientSocket;
  readonly #opcode: number;
  readonly #parser: FrameParser;
  #isClosing = false;

  /** @param socket after the handshake, paused; the stream owns it. */
  constructor(socket: ClientSocket, kind: 'text' | 'binary') {
    super({ allowHalfOpen: true, decodeStrings: true });
    this.#socket = socket;
    this.#opcode = Opcode[kind];
    this.#parser = new FrameParser({
      data: (piece) => void (this.push(piece) || socket.pause()),
      ping: (payload) => this.#answer(controlFrame(Opcode.pong, payload)),
      close: () => this.#closedByClient(),
    });
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    // A client without input may have ended its side together with its request, before anybody listened.
    if (socket.readableEnded) this.push(null);
    else socket.once('end', () => void this.push(null));
    socket.once('error', () => this.destroy());
    // In its own turn, so that an end of input that was read just now is seen first.
    socket.once('close', () => setImmediate(() => this.destroy()));
  }

  get fd(): number {
    return this.#socket.fd;
  }

  override _read(): void {
    if (!this.#isClosing) this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error) => void): void {
    this.#writeFrames([chunk], callback);
  }

  override _writev(items: { readonly chunk: Buffer }[], callback: (error?: Error) => void): void {
    this.#writeFrames(
      items.map(({ chunk }) => chunk),
      callback,
    );
  }

  override _final(callback: (error?: Error) => void): void {
    this.#close(CloseCode.normal);
    callback();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#socket.destroy();
    callback(error);
  }

  /** Writes one frame for all chunks that wait. */
  #writeFrames(chunks: readonly Buffer[], callback: () => void): void {
    const size = chunks.reduce((sum, { length }) => sum + length, 0);
    if (size === 0 || this.#isClosing) return callback();
    this.#socket.cork();
    this.#socket.write(frame(this.#opcode, size));
    for (const chunk of chunks) this.#socket.write(chunk);
    this.#socket.uncork();
    if (this.#socket.writableNeedDrain) this.#socket.once('drain', callback);
    else callback();
  }

  #receive(chunk: Buffer): void {
    try {
      this.#parser.push(chunk);
    } catch {
      // Any fault of a client is answered with this close code.
      this.push(null);
      this.#close(CloseCode.protocolError);
    }
  }

  #answer(bytes: Buffer): void {
    if (this.#socket.writableLength > MAX_WAITING_BYTES) this.destroy();
    else if (!this.#isClosing) this.#socket.write(bytes);
  }

  #closedByClient(): void {
    this.push(null);
    this.#close(CloseCode.normal);
  }

  #close(code: number): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    const socket = this.#socket;
    socket.end(closeFrame(code));
    // Further input of the client is not read any more, but its end must be seen.
    socket.removeAllListeners('data');
    socket.resume();
    socket.once('finish', () => socket.setTimeout(LINGER_MS, () => socket.destroy()));
  }
}
