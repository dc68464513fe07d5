/**
 * Sends replies on a raw socket. The connection always ends with the reply: a connection that should be kept alive
 * stays with the parser.
 */
import { type OnReadOpts, Socket } from 'node:net';
import { duplicateFd } from '../sys/files/fd.js';
import { limitUnread } from '../sys/net/socket-progress.js';
import type { BodyFraming } from '../text/body-framing.js';
import { LINGER_BYTES, LINGER_MS, LONGEST_LINGER_MS } from './linger.js';
import type { Peer } from './peer.js';
import { readOn } from './read-on.js';
import { isBodiless, statusLine, type ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import { clientGone, MAX_BEHIND_BYTES, StreamState } from './stream-state.js';
import type { StreamOwner, Transport } from './transport.js';

/** Pieces up to this size are joined with their chunk frame; larger ones are not worth the copy. */
const JOIN_BYTES = 16 * 1024;

/** Bytes that Node holds for a raw socket before it reports a client that does not read. */
const RAW_BUFFER_BYTES = 256 * 1024;

/** Node reads as much at once. */
const LENT_BYTES = 64 * 1024;

/** A connection that has no parser (any more). */
export class RawSocket extends Socket {
  /**
   * @param fd belongs to the socket from now on, unless this throws.
   * @param unreadBytes limits the bytes that are kept for a client that does not read. If it is below the usual limit,
   * the kernel is told to keep no more either.
   * @param onread reads in Node's place.
   */
  constructor(
    readonly fd: number,
    unreadBytes = RAW_BUFFER_BYTES,
    onread?: OnReadOpts,
  ) {
    const options = { fd, allowHalfOpen: true, readable: true, writable: true, writableHighWaterMark: unreadBytes };
    super({ ...options, ...(onread && { onread }) });
    if (unreadBytes < RAW_BUFFER_BYTES) limitUnread(fd, unreadBytes);
    // The event 'close' tells all that matters; without a listener an error would end the daemon.
    this.on('error', () => undefined);
  }
}

/**
 * A socket whose event `data` lends its piece for the call: all are read into the same memory. Node would take memory
 * for each, which is garbage at once, at the speed of the client.
 */
export class LendingSocket extends RawSocket {
  constructor(fd: number) {
    super(fd, RAW_BUFFER_BYTES, {
      buffer: Buffer.allocUnsafeSlow(LENT_BYTES),
      callback: (length, memory) => {
        this.emit('data', Buffer.from(memory.buffer, memory.byteOffset, length));
        return true;
      },
    });
  }
}

/** How a reply must look for a client. */
export interface ReplyForm {
  /** The client wants to know the length of the body only. */
  readonly isHead: boolean;
  /** The client of HTTP/1.0 knows no chunks: a stream ends with the connection. */
  readonly isChunked: boolean;
}

const USUAL_FORM: ReplyForm = { isHead: false, isChunked: true };

export class RawTransport implements Transport {
  readonly peer: Peer;
  readonly #socket: RawSocket;
  readonly #body: BodyFraming | undefined;
  readonly #form: ReplyForm;

  /** @param body is the body of the request while it may still be arriving; absent: all of it is there. */
  constructor(socket: RawSocket, peer: Peer, body?: BodyFraming, form = USUAL_FORM) {
    this.#socket = socket;
    this.peer = peer;
    this.#body = body;
    this.#form = form;
  }

  pause(): void {}

  resume(): void {}

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    if (this.#body === undefined || this.#body.isComplete) this.#send(head, body);
    else readOn(this.#socket, this.#body, () => this.#send(head, body));
  }

  #send(head: ReplyHead, body: string | Uint8Array | undefined): void {
    sendLast(this.#socket, renderReply(head, body, { closing: true, isHead: this.#form.isHead }));
  }

  stream(head: ReplyHead, owner: StreamOwner): ResponseStream {
    const stream = new RawResponseStream(head, owner, this.#form.isChunked);
    stream.attach(this.#socket);
    return stream;
  }

  takeSocket(): RawSocket {
    return this.#socket;
  }

  abort(): void {
    this.#socket.destroy();
  }
}

export class RawResponseStream implements ResponseStream {
  readonly #state: StreamState;
  /** Pieces, at least the head, that wait for a socket. */
  #early: (string | Uint8Array)[] | undefined;
  #earlyBytes = 0;
  #socket: RawSocket | undefined;

  constructor(
    head: ReplyHead,
    owner: StreamOwner,
    private readonly isChunked = true,
  ) {
    this.#state = new StreamState(owner);
    this.#early = [renderHead(head, isChunked ? 'Transfer-Encoding: chunked\r\n' : '', true)];
  }

  get closed(): boolean {
    return this.#state.closed;
  }

  /** Sends what waits, and goes on with the socket, which the stream then owns. */
  attach(socket: RawSocket): void {
    this.#socket = socket;
    if (this.#state.gone) {
      socket.destroy();
      return;
    }
    const early = this.#early ?? [];
    this.#early = undefined;
    socket.on('drain', () => this.#state.drained());
    socket.on('close', () => this.gone());
    // The end of what the client sends is its going away, as for dockerd; other bytes have no meaning any more.
    socket.on('end', () => this.gone());
    socket.resume();
    socket.cork();
    for (const piece of early) socket.write(piece);
    socket.uncork();
    if (this.closed) this.#finish();
    else this.#state.drained();
  }

  write(chunk: string | Uint8Array, onSent?: () => void): boolean {
    if (this.closed) return false;
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    // An empty chunk would end the body.
    if (bytes.length === 0) return true;
    const behind = this.#send(bytes, onSent);
    if (behind > MAX_BEHIND_BYTES) this.abort();
    if (behind > 0) this.#state.fallBehind();
    return behind === 0;
  }

  ready(): Promise<void> {
    return this.#state.ready();
  }

  async lend(): Promise<number | undefined> {
    // A descriptor is lent to those who write chunks.
    if (!this.isChunked) return undefined;
    if (this.#socket === undefined) this.#state.fallBehind();
    await this.ready();
    const socket = this.#socket;
    if (socket === undefined) return undefined;
    // Called back when all before is out.
    await new Promise<void>((resolve) => socket.write('', () => resolve()));
    if (socket.destroyed) throw clientGone();
    return duplicateFd(socket.fd);
  }

  end(): void {
    if (this.closed) return;
    if (this.isChunked) this.#put('0\r\n\r\n');
    this.#state.close(false);
    if (this.#socket !== undefined) this.#finish();
  }

  abort(): void {
    this.#socket?.destroy();
    this.gone();
  }

  onClose(callback: () => void): void {
    this.#state.onClose(callback);
  }

  /** Ends the stream because the client is gone; the transport calls it. */
  gone(): void {
    if (this.closed) return;
    this.#socket?.destroy();
    this.#state.close(true);
  }

  /** Sends bytes. Returns how many wait because the client is behind, 0 when it is not. */
  #send(bytes: Uint8Array, onSent: (() => void) | undefined): number {
    const frame = `${bytes.length.toString(16)}\r\n`;
    let more: boolean;
    if (!this.isChunked) {
      more = this.#put(bytes, onSent);
    } else if (bytes.length <= JOIN_BYTES) {
      const joined = Buffer.allocUnsafe(frame.length + bytes.length + 2);
      joined.write(frame, 0, 'latin1');
      joined.set(bytes, frame.length);
      joined.write('\r\n', frame.length + bytes.length, 'latin1');
      more = this.#put(joined);
    } else {
      this.#socket?.cork();
      this.#put(frame);
      this.#put(bytes);
      more = this.#put('\r\n', onSent);
      this.#socket?.uncork();
      more = this.#socket === undefined ? more : !this.#socket.writableNeedDrain;
    }
    return more ? 0 : (this.#socket?.writableLength ?? this.#earlyBytes);
  }

  #put(piece: string | Uint8Array, onSent?: () => void): boolean {
    if (this.#early === undefined) return this.#socket?.write(piece, onSent && ((error) => error ?? onSent())) ?? false;
    this.#early.push(piece);
    this.#earlyBytes += piece.length;
    return false;
  }

  #finish(): void {
    if (this.#socket !== undefined) sendLast(this.#socket);
  }
}

/** Renders a complete reply. @param options say whether its body is left out, and whether the connection ends. */
export function renderReply(
  head: ReplyHead,
  body: string | Uint8Array | undefined,
  { closing, isHead = false }: { readonly closing: boolean; readonly isHead?: boolean },
): Buffer {
  const bytes = typeof body === 'string' ? Buffer.from(body) : (body ?? new Uint8Array(0));
  const isEmpty = isBodiless(head.status);
  const text = renderHead(head, isEmpty ? '' : `Content-Length: ${bytes.length}\r\n`, closing);
  return Buffer.concat([Buffer.from(text), isEmpty || isHead ? new Uint8Array(0) : bytes]);
}

function renderHead(head: ReplyHead, framing: string, closing: boolean): string {
  const date = new Date().toUTCString();
  const end = closing ? 'Connection: close\r\n\r\n' : '\r\n';
  return `HTTP/1.1 ${statusLine(head.status)}\r\n${head.name}: ${head.value}\r\nDate: ${date}\r\n${framing}${end}`;
}

/** Sends the last bytes, and frees the socket then, also when the client never closes its side. */
export function sendLast(socket: Socket, last?: Uint8Array): void {
  if (last === undefined) socket.end();
  else socket.end(last);
  let bytes = 0;
  socket.on('data', (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > LINGER_BYTES) socket.destroy();
  });
  socket.resume();
  socket.once('finish', () => {
    socket.setTimeout(LINGER_MS, () => socket.destroy());
    const longest = setTimeout(() => socket.destroy(), LONGEST_LINGER_MS).unref();
    socket.once('close', () => clearTimeout(longest));
  });
}
