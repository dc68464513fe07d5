/**
 * Serves a request that is taken off the socket alone, so that what is behind it, or comes right after, waits in the
 * kernel for the reply. The HTTP parser would take all of it at once: also the bytes of whoever hijacks the connection
 * by a later request, and an empty line, behind which it finds no request any more. It also refuses a request that
 * comes before the reply to the one before.
 */
import { Socket } from 'node:net';
import { closeFd, duplicateFd, endConnection, onceEnded, sendToSocket, takeFromSocket } from '../sys/files/fd.js';
import { MAX_HIJACK_BODY_BYTES } from './direct-request.js';
import { asksToClose } from './framing.js';
import type { Gate, LiveConnection } from './gate.js';
import { HEAD_END, readHeaders, readRequestLine } from './header-lines.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import { lingerOn } from './linger.js';
import { peerOf, type Peer } from './peer.js';
import { RawSocket, RawTransport, renderReply, sendLast } from './raw-reply.js';
import { admit } from './refusal.js';
import { KeptHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import type { Resolution, Router } from './router.js';
import type { StreamOwner, Transport } from './transport.js';

/**
 * A client that has sent more and says that this is all, or has left, still gets a reply that takes no longer than
 * this. The two cases look the same, so a longer wait might be for nobody.
 */
const PATIENCE_MS = 5_000;

/** Most replies come within this time, so that nobody has to look whether the client is still there. */
const UNWATCHED_MS = 20;

export interface SingleRequest {
  readonly method: string;
  readonly found: Resolution;
  readonly head: KeptHead;
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/**
 * Reads a request that the socket holds as a whole. Returns undefined for whatever is unusual; the parser decides about
 * that.
 * @param text is its head without the empty line.
 */
export function readSingleRequest(
  text: string,
  bodyBytes: number,
  router: Router,
  gate: Gate,
): SingleRequest | undefined {
  if (bodyBytes > MAX_HIJACK_BODY_BYTES) return undefined;
  const line = readRequestLine(text);
  const headers = line && readHeaders(text, line);
  if (line === undefined || headers === undefined || headers.has('expect')) return undefined;
  const { method, path, query } = line;
  const found = gate.resolve(router, method, path);
  if (found.kind === 'route' && (found.route.hijack !== undefined || found.route.upload === 'takes')) return undefined;
  return {
    method,
    found,
    head: new KeptHead(headers, path, query),
    headBytes: text.length + HEAD_END.length,
    bodyBytes,
  };
}

/** A connection whose request arrived as a whole. */
export interface SingleConnection {
  readonly fd: number;
  readonly gate: Gate;
  /** The peer behind the socket, when that is not its other end. */
  readonly peer: Peer | undefined;
  /** More has arrived behind the request. */
  readonly isFollowed: boolean;
}

/**
 * Takes the request off the socket and replies. The descriptor is given away unless this throws.
 * @param next gets the connection, perhaps by another descriptor, when the reply is out; it must not throw.
 */
export function serveSingle(
  services: ExchangeServices,
  connection: SingleConnection,
  request: SingleRequest,
  next: (fd: number) => void,
): void {
  const { fd, gate } = connection;
  const { method, head, headBytes, bodyBytes } = request;
  const bytes = Buffer.alloc(headBytes + bodyBytes);
  takeFromSocket(fd, bytes, bytes.length);
  const transport = new SingleTransport(connection, { isHead: method === 'HEAD', isLast: asksToClose(head) }, next);
  const found = admit(services, gate, transport, request);
  if (found === undefined) return;
  const exchange = new HttpExchange(services, gate, transport, { found, method, head });
  if (bodyBytes > 0) exchange.body.push(bytes.subarray(headBytes), true);
  exchange.run();
  transport.onDeparture(() => exchange.abort());
}

interface Wishes {
  /** The client wants to know the length of the body only. */
  readonly isHead: boolean;
  /** The client wants the connection to end with the reply. */
  readonly isLast: boolean;
}

/** This transport does not touch the socket before the reply. */
class SingleTransport implements Transport, LiveConnection {
  readonly idle = false;
  readonly #connection: SingleConnection;
  readonly #wishes: Wishes;
  readonly #next: (fd: number) => void;
  #peer: Peer | undefined;
  /** Descriptor of the connection until somebody else owns it. */
  #fd: number | undefined;
  /** The socket that sends the reply, when the kernel did not take all of it at once. */
  #socket: Socket | undefined;
  #departure: { cancel(): void } | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(connection: SingleConnection, wishes: Wishes, next: (fd: number) => void) {
    this.#connection = connection;
    this.#fd = connection.fd;
    this.#peer = connection.peer;
    this.#wishes = wishes;
    this.#next = next;
    connection.gate.connections.add(this);
  }

  get peer(): Peer {
    return (this.#peer ??= peerOf(this.#fd ?? -1));
  }

  pause(): void {}

  resume(): void {}

  /** Calls back when the client is gone and has no reply; one that has sent more may only have said that it is all. */
  onDeparture(callback: () => void): void {
    const { isFollowed } = this.#connection;
    const watch = (fd: number): void => {
      this.#departure = onceEnded(fd, () => {
        this.#departure = undefined;
        if (isFollowed) this.#timer = setTimeout(callback, PATIENCE_MS);
        else callback();
      });
    };
    const fd = this.#fd;
    if (fd !== undefined) this.#timer = setTimeout(watch, UNWATCHED_MS, fd);
  }

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    if (this.#wishes.isLast || this.#connection.gate.closing) return this.#replyLast(head, body);
    const reply = renderReply(head, body, { closing: false, isHead: this.#wishes.isHead });
    const sent = this.#send(reply);
    if (sent === undefined) return;
    const { fd, bytes } = sent;
    if (bytes < reply.length) return this.#sendRest(fd, reply.subarray(bytes));
    // In this order, so that the gate never seems idle in between.
    this.#next(fd);
    this.#connection.gate.connections.delete(this);
  }

  stream(head: ReplyHead, owner: StreamOwner, _bodyPending: boolean, unreadBytes?: number): ResponseStream {
    const { peer } = this;
    const fd = this.#take();
    this.#connection.gate.connections.delete(this);
    return new RawTransport(new RawSocket(fd, unreadBytes), peer).stream(head, owner);
  }

  takeSocket(): never {
    throw new Error('the route does not declare that it hijacks');
  }

  abort(): void {
    this.close();
  }

  close(): void {
    this.#socket?.destroy();
    if (this.#fd === undefined) return;
    endConnection(this.#take());
    this.#connection.gate.connections.delete(this);
  }

  /**
   * Replies, and ends the connection. What is behind the request is read, and has no effect: if it were left unread,
   * the client would get a reset, perhaps in the place of the reply.
   */
  #replyLast(head: ReplyHead, body: string | Uint8Array | undefined): void {
    const { connections } = this.#connection.gate;
    const reply = renderReply(head, body, { closing: true, isHead: this.#wishes.isHead });
    const sent = this.#send(reply);
    if (sent === undefined) return;
    const { fd } = sent;
    if (sent.bytes === reply.length) {
      connections.delete(this);
      return lingerOn(fd);
    }
    const socket = new RawSocket(fd);
    this.#socket = socket;
    for (const event of ['finish', 'close']) socket.once(event, () => connections.delete(this));
    sendLast(socket, reply.subarray(sent.bytes));
  }

  /** Sends as much as the socket takes at once, and gives up its descriptor. Undefined: the client is gone. */
  #send(reply: Uint8Array): { readonly fd: number; readonly bytes: number } | undefined {
    const fd = this.#take();
    try {
      return { fd, bytes: sendToSocket(fd, reply) };
    } catch {
      closeFd(fd);
      this.#connection.gate.connections.delete(this);
      return undefined;
    }
  }

  /** Sends the rest of a reply at the pace of the client. */
  #sendRest(fd: number, rest: Uint8Array): void {
    // It never reads, so what is behind the request stays where it is.
    const socket = new Socket({ fd, readable: false, writable: true, allowHalfOpen: true });
    this.#socket = socket;
    socket.on('error', () => undefined);
    socket.once('close', () => this.#connection.gate.connections.delete(this));
    socket.write(rest, (error) => {
      if (!error) this.#goOn(fd);
      socket.destroy();
    });
  }

  #goOn(fd: number): void {
    let again: number;
    try {
      again = duplicateFd(fd);
    } catch {
      // There are no descriptors left: this connection cannot go on, the daemon can.
      return;
    }
    this.#next(again);
  }

  #take(): number {
    const fd = this.#fd;
    if (fd === undefined) throw new Error('the connection is over');
    this.#fd = undefined;
    this.#departure?.cancel();
    clearTimeout(this.#timer);
    return fd;
  }
}
