/**
 * One connection at a time, served by an App of uWebSockets.js of its own: the library's callbacks do not say which
 * connection they are about, so each connection has an App, and Apps are reused.
 */
import { Socket } from 'node:net';
import { closeFd, duplicateFd } from '../sys/fd.js';
import type { Gate } from './gate.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import { RawResponseStream, RawTransport } from './raw-reply.js';
import { refuse } from './refusal.js';
import type { RequestBody } from './request-body.js';
import { isBodiless, statusLine, type ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import type { RouteMatch, Router } from './router.js';
import type { StreamOwner, Transport } from './transport.js';
import { UwsResponseStream } from './uws-stream.js';
import { createUwsApp, type HttpRequest, type HttpResponse, type UwsApp } from './uws.js';

/** How long a connection may be without a request, and a request's head may take. */
const IDLE_S = 300;

/** Bytes that Node holds for a raw socket before it reports a client that does not read. */
const RAW_BUFFER_BYTES = 256 * 1024;

/** The largest body before a hijack: exec start has a few dozen bytes. */
const MAX_HIJACK_BODY_BYTES = 1024 * 1024;

export interface ConnectionServices extends ExchangeServices {
  readonly router: Router;
}

export class UwsConnection implements Transport {
  readonly #services: ConnectionServices;
  readonly #release: (connection: UwsConnection) => void;
  readonly #app: UwsApp;
  #gate: Gate | undefined;
  #fd = -1;
  /** The reply that is possible now; undefined between requests. */
  #res: HttpResponse | undefined;
  #exchange: HttpExchange | undefined;
  #stream: UwsResponseStream | RawResponseStream | undefined;
  #isHead = false;
  /** While uWebSockets.js announces a request: what is written is corked already. */
  #inCallback = false;
  #paused = false;
  #uploading = false;

  /** @param release called when the connection has ended and this object can serve another one. */
  constructor(services: ConnectionServices, release: (connection: UwsConnection) => void) {
    this.#services = services;
    this.#release = release;
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

  /** Serves a connected socket. The descriptor now belongs to this connection. */
  adopt(fd: number, gate: Gate): void {
    this.#fd = fd;
    this.#gate = gate;
    gate.connections.add(this);
    try {
      this.#app.adoptSocket(fd);
    } catch (error) {
      gate.connections.delete(this);
      closeFd(fd);
      throw error;
    }
  }

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    const res = this.#res;
    if (res === undefined) return;
    if (this.#inCallback) this.#writeReply(res, head, body);
    else res.cork(() => this.#writeReply(res, head, body));
  }

  stream(head: ReplyHead, owner: StreamOwner, bodyPending: boolean): ResponseStream {
    const res = this.#res;
    if (res === undefined) throw new Error('there is no request to reply to');
    if (bodyPending) {
      const host = {
        writeHead: (res: HttpResponse) => writeHead(res, head),
        end: (res: HttpResponse) => {
          this.#forget();
          res.end(undefined, this.#gate?.closing);
        },
      };
      const stream = new UwsResponseStream(res, host, owner);
      this.#stream = stream;
      return stream;
    }
    const stream = new RawResponseStream(head, owner);
    this.#stream = stream;
    this.#whenFlushed(() => stream.attach(this.#detach()));
    return stream;
  }

  takeSocket(): Socket {
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

  #onRequest(res: HttpResponse, req: HttpRequest): void {
    const gate = this.#gate;
    if (gate === undefined) return;
    const method = req.getCaseSensitiveMethod();
    const found = this.#services.router.resolve(method, req.getUrl());
    this.#res = res;
    this.#isHead = method === 'HEAD';
    this.#inCallback = true;
    if (found.kind !== 'route' || gate.full) {
      const { head, body } = refuse(found, req.getQuery(), this.#services.heads);
      this.#writeReply(res, head, body);
    } else if (found.route.hijack === undefined) {
      this.#serve(res, req, method, found, gate);
    } else {
      this.#handOver(res, req, method, found, gate);
    }
    this.#inCallback = false;
  }

  #serve(res: HttpResponse, req: HttpRequest, method: string, found: RouteMatch, gate: Gate): void {
    const exchange = new HttpExchange(this.#services, gate, this, found, method, req);
    this.#exchange = exchange;
    exchange.run();
    if (exchange.over) return;
    exchange.keepRequest();
    res.onAborted(() => undefined);
    if (exchange.bodyLength !== 0) this.#receive(res, exchange.body);
  }

  /** Lets the body come in, at whatever pace. */
  #receive(res: HttpResponse, body: RequestBody): void {
    this.#app.setIdleTimeout(0);
    this.#uploading = true;
    res.onData((chunk, isLast) => {
      // The memory is the library's, and is reused when this returns.
      body.push(Buffer.from(new Uint8Array(chunk)), isLast);
    });
  }

  /** Takes the connection back from the library, and lets the handler run on the raw socket. */
  #handOver(res: HttpResponse, req: HttpRequest, method: string, found: RouteMatch, gate: Gate): void {
    const headers = new Map<string, string>();
    req.forEach((name, value) => headers.set(name, value));
    const query = req.getQuery();
    const request = {
      getHeader: (name: string) => headers.get(name) ?? '',
      getQuery: () => query,
      forEach: (callback: (name: string, value: string) => void) => headers.forEach((value, name) => callback(name, value)),
    };
    const start = (body: Buffer): void => {
      const socket = this.#detach();
      const exchange = new HttpExchange(this.#services, gate, new RawTransport(socket, false), found, method, request);
      exchange.body.push(body, true);
      socket.on('close', () => exchange.settle(true));
      exchange.run();
    };
    res.onAborted(() => undefined);
    const chunked = headers.has('transfer-encoding');
    if (Number(headers.get('content-length') ?? 0) === 0 && (!chunked || found.route.hijack === 'after-head')) {
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
    setImmediate(() => {
      if (res !== undefined && this.#res === res) action();
    });
  }

  /** The connection as a raw socket; this object is free for another connection when it returns. */
  #detach(): Socket {
    const fd = duplicateFd(this.#fd);
    const res = this.#res;
    this.#exchange = undefined;
    this.#stream = undefined;
    // Closes the library's descriptor only: nothing is sent and the connection lives on in the duplicate.
    res?.close();
    const options = { fd, allowHalfOpen: true, readable: true, writable: true, writableHighWaterMark: RAW_BUFFER_BYTES };
    const socket = new Socket(options);
    // Its 'close' tells all that matters; without a listener an error would end the daemon.
    socket.on('error', () => undefined);
    return socket;
  }

  #writeReply(res: HttpResponse, head: ReplyHead, body: string | Uint8Array | undefined): void {
    // Unread bytes of the body must flow again, or the next request never comes through.
    if (this.#paused) this.resume();
    const closing = this.#gate?.closing;
    this.#forget();
    writeHead(res, head);
    // An explicit undefined would be rendered as a length.
    if (isBodiless(head.status)) res.endWithoutBody();
    else if (body === undefined) res.endWithoutBody(0, closing);
    else if (this.#isHead) res.endWithoutBody(Buffer.byteLength(body), closing);
    else res.end(body, closing);
  }

  /** The request is answered: `res` is no longer valid. */
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
    this.#gate = undefined;
    this.#fd = -1;
    this.#release(this);
    if (stream !== undefined) stream.gone();
    else exchange?.settle(true);
  }
}

function writeHead(res: HttpResponse, head: ReplyHead): void {
  if (head.status !== 200) res.writeStatus(statusLine(head.status));
  res.writeHeader(head.name, head.value);
}

/** Connections that have ended and can serve again: their Apps are never given back to the system. */
export class ConnectionPool {
  readonly #services: ConnectionServices;
  readonly #free: UwsConnection[] = [];

  constructor(services: ConnectionServices) {
    this.#services = services;
  }

  /** Serves a connected socket, whose descriptor is given away. */
  adopt(fd: number, gate: Gate): void {
    const connection = this.#free.pop() ?? new UwsConnection(this.#services, (ended) => this.#free.push(ended));
    connection.adopt(fd, gate);
  }
}
