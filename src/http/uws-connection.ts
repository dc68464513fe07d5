/**
 * One connection at a time, served by an App of uWebSockets.js of its own: the library's callbacks do not say which
 * connection they are about, so each connection has an App, and Apps are reused.
 */
import { Buffer } from 'node:buffer';
import { duplicateFd } from '../sys/files/fd.js';
import { stopCounting } from '../sys/net/socket-progress.js';
import type { Gate } from './gate.js';
import { MAX_HIJACK_BODY_BYTES } from './direct-request.js';
import { asksToClose, hasBody, isKnownFraming, UNKNOWN_FRAMING, UNKNOWN_FRAMING_MESSAGE } from './framing.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import { runOnRawSocket } from './hijack-request.js';
import { onNextPoll } from './next-poll.js';
import { peerOf, type Peer } from './peer.js';
import { messageBody } from './error-status.js';
import { RawResponseStream, RawSocket, RawTransport } from './raw-reply.js';
import { admit, NOT_SERVED, NOT_SERVED_MESSAGE } from './refusal.js';
import { KeptHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import type { RouteMatch, Router } from './router.js';
import type { StreamOwner, Transport } from './transport.js';
import {
  SMALL_REPLY_BYTES,
  UwsParking,
  type Parkable,
  type ParkedConnection,
  type ParkingOwner,
} from './uws-parking.js';
import { headBytes, writeHead, writeWhole } from './uws-reply.js';
import { UwsRoom } from './uws-room.js';
import { UwsResponseStream } from './uws-stream.js';
import { createUwsApp, type HttpRequest, type HttpResponse, type UwsApp } from './uws.js';

/** How long a connection may be without a request, and a request's head may take. */
const IDLE_S = 300;

export interface ConnectionServices extends ExchangeServices {
  readonly router: Router;
}

/** The owner hands out connections. */
export interface ConnectionOwner extends ParkingOwner {
  /** The connection is over; this object can serve another one. */
  ended(connection: UwsConnection): void;
}

export class UwsConnection implements Transport, Parkable {
  readonly #services: ConnectionServices;
  readonly #owner: ConnectionOwner;
  readonly #app: UwsApp;
  #gate: Gate | undefined;
  #fd = -1;
  /** The peer that was given with the socket, when that is not its other end. */
  #givenPeer: Peer | undefined;
  #peer: Peer | undefined;
  /** The reply that is possible now; undefined between requests. */
  #res: HttpResponse | undefined;
  #exchange: HttpExchange | undefined;
  #stream: UwsResponseStream | RawResponseStream | undefined;
  #isHead = false;
  /** While uWebSockets.js announces a request: what is written is corked already. */
  #inCallback = false;
  #paused = false;
  #uploading = false;
  /**
   * Where the next request begins is not known any more, or there is none as the client says; the library would go on
   * with what it has received.
   */
  #isUnreadable = false;
  /** The request has a body and the connection ends with the reply, but the client may go on sending. */
  #mayStillSend = false;
  readonly #room = new UwsRoom();
  readonly #parking: UwsParking;

  constructor(services: ConnectionServices, owner: ConnectionOwner) {
    this.#services = services;
    this.#owner = owner;
    this.#parking = new UwsParking(this, owner);
    this.#app = createUwsApp();
    // Clients that stall while they read a reply are not cut off: only their own connection waits.
    this.#app.setResponseTimeout(0).setIdleTimeout(IDLE_S);
    this.#app.any('/*', (res, req) => this.#onRequest(res, req));
    this.#app.filter((_res, count) => {
      if (Number(count) < 0) this.#onClosed();
    });
  }

  /** True between requests. */
  get idle(): boolean {
    return this.#res === undefined;
  }

  /** The connection ends with the reply. */
  #isClosing(): boolean {
    return this.#isUnreadable || this.#gate?.closing === true;
  }

  get peer(): Peer {
    return (this.#peer ??= peerOf(this.#fd));
  }

  /**
   * Serves a connected socket of which bytes have arrived. The descriptor is given away unless this throws.
   * @param requestBytes as `UwsParking.begin`.
   */
  adopt({ fd, gate, peer, answered }: ParkedConnection, requestBytes: number): void {
    this.#app.adoptSocket(fd);
    this.#fd = fd;
    this.#givenPeer = peer;
    this.#peer = peer;
    this.#isUnreadable = false;
    this.#gate = gate;
    this.#parking.begin(answered, requestBytes);
    gate.connections.add(this);
    // The library has yet to read its request: until then it only seems to be idle.
    gate.expect(this);
  }

  park(): ParkedConnection | undefined {
    const gate = this.#gate;
    if (gate === undefined || this.#res !== undefined || !this.#parking.hasReadNoMore(this.#fd)) return undefined;
    const fd = duplicateFd(this.#fd);
    stopCounting(fd);
    const parked = { fd, gate, peer: this.#givenPeer, answered: this.#parking.answered };
    // Closes the library's descriptor only: nothing is sent and the connection lives on in the duplicate.
    this.#app.close();
    return parked;
  }

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    const res = this.#res;
    if (res === undefined) return;
    const size = body === undefined || this.#isHead ? 0 : Buffer.byteLength(body);
    const isLarge = size > SMALL_REPLY_BYTES;
    const write = (): void => {
      if (isLarge) this.#writeLargeReply(res, head, Buffer.from(body ?? ''));
      else this.#writeReply(res, head, body);
    };
    if ((this.#mayStillSend && this.#exchange?.body.complete !== true) || (isLarge && this.#isClosing()))
      this.#replyAndLinger(head, body);
    else if (!this.#room.take(headBytes(head) + (isLarge ? 0 : size)))
      onNextPoll(() => void (this.#res === res && res.cork(write)));
    else if (this.#inCallback) write();
    else res.cork(write);
  }

  /**
   * Replies over the raw socket. The library would cut off a client that still sends its body, and it does not end a
   * connection behind a large reply.
   */
  #replyAndLinger(head: ReplyHead, body: string | Uint8Array | undefined): void {
    const { peer } = this;
    this.#whenFlushed(() => new RawTransport(this.#detach(), peer).reply(head, body));
  }

  stream(head: ReplyHead, owner: StreamOwner, bodyPending: boolean, unreadBytes?: number): ResponseStream {
    const res = this.#res;
    if (res === undefined) throw new Error('there is no request to reply to');
    if (bodyPending) {
      const host = {
        writeHead: (res: HttpResponse) => {
          writeHead(res, head);
          // The library would put this header into the body when a stream ends.
          if (this.#isClosing()) res.writeHeader('Connection', 'close');
        },
        takesInCallback: (bytes: number) => this.#room.take(headBytes(head) + bytes),
        end: (res: HttpResponse) => {
          this.#finish();
          res.end();
        },
      };
      const stream = new UwsResponseStream(res, host, owner);
      this.#stream = stream;
      return stream;
    }
    const stream = new RawResponseStream(head, owner);
    this.#stream = stream;
    this.#whenFlushed(() => stream.attach(this.#detach(unreadBytes)));
    return stream;
  }

  takeSocket(): never {
    throw new Error('the route does not declare that it hijacks');
  }

  pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#res?.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#res?.resume();
  }

  abort(): void {
    this.#res?.close();
  }

  /** Ends the connection, whatever is going on. */
  close(): void {
    this.#app.close();
  }

  /**
   * This callback must not throw, and each request must get a reply or a promise of one: otherwise the library ends the
   * whole process.
   */
  #onRequest(res: HttpResponse, req: HttpRequest): void {
    this.#res = res;
    this.#inCallback = true;
    try {
      this.#judge(res, req);
    } catch (err) {
      this.#services.logger.error({ err }, 'a request could not be served');
      this.#giveUp(res);
    }
    this.#inCallback = false;
    this.#gate?.expectNoMore(this);
    // The library insists on this handler, though `filter` tells the same for every state of a connection.
    if (this.#res === res) res.onAborted(() => undefined);
  }

  /** Answers a request whose handling has thrown; if a handler works on it already, the connection is ended instead. */
  #giveUp(res: HttpResponse): void {
    if (this.#res !== res) return;
    if (this.#exchange === undefined) this.#writeReply(res, NOT_SERVED, messageBody(NOT_SERVED_MESSAGE), true);
    else res.close();
  }

  #judge(res: HttpResponse, req: HttpRequest): void {
    const gate = this.#gate;
    if (gate === undefined) return void res.close();
    const method = req.getCaseSensitiveMethod();
    this.#isHead = method === 'HEAD';
    const found = gate.resolve(this.#services.router, method, req.getUrl());
    this.#parking.requested(req, this.#fd, found.kind === 'route' && found.route.upload === 'precedes');
    const wasUnreadable = this.#isUnreadable;
    // The library takes trailers for a next request and does not check line ends in chunks. Where the client asks for
    // the end, it knows one spelling only.
    const encoding = req.getHeader('transfer-encoding');
    this.#isUnreadable ||= encoding !== '' || asksToClose(req);
    // Nearly no request ends its connection, so its length is not asked for here.
    this.#mayStillSend = this.#isClosing() && !this.#isHead && hasBody(req);
    if (wasUnreadable) {
      // The close waits, so that the replies to earlier requests leave the library's buffer first.
      onNextPoll(() => void (this.#res === res && res.close()));
    } else if (!isKnownFraming(req, encoding)) {
      this.#isUnreadable = true;
      this.#mayStillSend = false;
      this.#writeReply(res, UNKNOWN_FRAMING, messageBody(UNKNOWN_FRAMING_MESSAGE), true);
    } else {
      const match = admit(this.#services, gate, this, { found, head: req });
      if (match === undefined) return;
      if (match.route.hijack === undefined) this.#serve(res, req, method, match, gate);
      else this.#handOver(res, req, method, match, gate);
    }
  }

  #serve(res: HttpResponse, req: HttpRequest, method: string, found: RouteMatch, gate: Gate): void {
    const exchange = new HttpExchange(this.#services, gate, this, { found, method, head: req });
    this.#exchange = exchange;
    exchange.run();
    if (exchange.over) return;
    exchange.keepRequest();
    if (exchange.bodyLength !== 0) this.#receive(res, exchange);
  }

  /** Lets the body come in, at whatever pace. */
  #receive(res: HttpResponse, exchange: HttpExchange): void {
    this.#app.setIdleTimeout(0);
    this.#uploading = true;
    const { body } = exchange;
    res.onData((chunk, isLast) => {
      // After the reply nobody wants the rest.
      if (!exchange.over) body.push(new Uint8Array(chunk), isLast);
    });
  }

  /** Takes the connection back from the library, and lets the handler run on the raw socket. */
  #handOver(res: HttpResponse, req: HttpRequest, method: string, found: RouteMatch, gate: Gate): void {
    const head = KeptHead.copy(req);
    const start = (body: Buffer): void => {
      const { peer } = this;
      runOnRawSocket(this.#services, gate, { socket: this.#detach(), peer }, { found, method, head, body });
    };
    const chunked = head.getHeader('transfer-encoding') !== '';
    if (Number(head.getHeader('content-length')) === 0 && (!chunked || found.route.hijack === 'after-head')) {
      this.#whenFlushed(() => start(Buffer.alloc(0)));
      return;
    }
    const chunks: Buffer[] = [];
    let size = 0;
    res.onData((chunk, isLast) => {
      size += chunk.byteLength;
      if (size > MAX_HIJACK_BODY_BYTES) this.abort();
      else chunks.push(Buffer.from(new Uint8Array(chunk)));
      if (isLast) this.#whenFlushed(() => start(Buffer.concat(chunks)));
    });
  }

  /**
   * Runs when the replies to earlier, pipelined requests are out of the library's buffer, if the connection still
   * lives. What the client sends until then stays in the kernel, for whoever reads the raw socket.
   */
  #whenFlushed(action: () => void): void {
    const res = this.#res;
    res?.pause();
    onNextPoll(() => {
      if (res === undefined || this.#res !== res) return;
      try {
        action();
      } catch (err) {
        // Out of descriptors: this connection cannot go on, the daemon can.
        this.#services.logger.warn({ err }, 'a connection could not be taken over');
        this.abort();
      }
    });
  }

  /** The connection as a raw socket; this object is free for another connection when it returns. */
  #detach(unreadBytes?: number): RawSocket {
    const fd = duplicateFd(this.#fd);
    const res = this.#res;
    this.#exchange = undefined;
    this.#stream = undefined;
    // Closes the library's descriptor only: nothing is sent and the connection lives on in the duplicate.
    res?.close();
    return new RawSocket(fd, unreadBytes);
  }

  #writeReply(
    res: HttpResponse,
    head: ReplyHead,
    body: string | Uint8Array | undefined,
    closing = this.#isClosing(),
  ): void {
    this.#finish();
    writeWhole(res, head, body, this.#isHead, closing);
    if (!closing) this.#parking.replied(body);
  }

  /** Writes a reply of which the socket may not take all at once; the rest follows when the client has read. */
  #writeLargeReply(res: HttpResponse, head: ReplyHead, body: Buffer): void {
    // Unread bytes of the request's body must flow again, or the next request never comes through.
    this.resume();
    writeHead(res, head);
    this.#parking.keepWithLibrary();
    const write = (offset: number): boolean => {
      const [isTaken, isDone] = res.tryEnd(body.subarray(offset), body.length);
      if (isDone && this.#res === res) this.#forget();
      return isTaken;
    };
    if (!write(0) && this.#res === res) res.onWritable(write);
  }

  /** Before the last bytes of a reply, after which `res` is no longer valid. */
  #finish(): void {
    // Unread bytes of the body must flow again, or the next request never comes through.
    this.resume();
    this.#forget();
  }

  #forget(): void {
    this.#res = undefined;
    this.#exchange = undefined;
    this.#stream = undefined;
    if (this.#uploading) {
      this.#uploading = false;
      this.#app.setIdleTimeout(IDLE_S);
    }
  }

  #onClosed(): void {
    const exchange = this.#exchange;
    const stream = this.#stream;
    this.#paused = false;
    this.#forget();
    this.#gate?.connections.delete(this);
    this.#gate?.expectNoMore(this);
    this.#gate = undefined;
    this.#fd = -1;
    this.#parking.end();
    this.#owner.ended(this);
    if (stream !== undefined) stream.gone();
    else exchange?.settle(true);
  }
}
