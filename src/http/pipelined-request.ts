/**
 * Serves a request that has further bytes behind it. The HTTP parser would take all of them at once, also those that
 * belong to whoever hijacks the connection by a later request, and it refuses a request that comes before the reply to
 * the one before. So the request is taken off the socket alone, and what is behind it waits in the kernel for the
 * reply.
 */
import { Socket } from 'node:net';
import { duplicateFd, endConnection, onceEnded, takeFromSocket } from '../sys/files/fd.js';
import { untakenBytes } from '../sys/net/socket-progress.js';
import { MAX_HIJACK_BODY_BYTES } from './direct-request.js';
import type { Gate, LiveConnection } from './gate.js';
import { HEAD_END, readHeaderLines, readRequestLine } from './header-lines.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { Peer } from './peer.js';
import { RawSocket, RawTransport, renderReply } from './raw-reply.js';
import { refuse } from './refusal.js';
import { KeptHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import type { Resolution, Router } from './router.js';
import type { StreamOwner, Transport } from './transport.js';

/**
 * A client that has said that it sends no more, or has left, still gets a reply that takes no longer than this. The two
 * cases look the same, so a longer wait might be for nobody.
 */
const PATIENCE_MS = 5_000;

export interface PipelinedRequest {
  readonly method: string;
  readonly found: Resolution;
  readonly head: KeptHead;
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/**
 * Reads a request that the socket holds as a whole, with more behind it. Returns undefined for everything else and for
 * whatever is unusual; the parser decides about that.
 * @param text is its head without the empty line.
 */
export function readPipelinedRequest(
  text: string,
  bodyBytes: number,
  fd: number,
  gate: Gate,
  router: Router,
): PipelinedRequest | undefined {
  const headBytes = text.length + HEAD_END.length;
  if (bodyBytes > MAX_HIJACK_BODY_BYTES || untakenBytes(fd) <= headBytes + bodyBytes) return undefined;
  const line = readRequestLine(text);
  const headers = readHeaderLines(text.split('\r\n').slice(1));
  if (line === undefined || headers === undefined || !headers.has('host') || headers.has('expect')) return undefined;
  // The only options of a connection are to end it and to hijack it.
  if (headers.has('connection') && headers.get('connection')?.toLowerCase() !== 'keep-alive') return undefined;
  const { method, path, query } = line;
  const found = gate.resolve(router, method, path);
  if (found.kind === 'route' && (found.route.hijack !== undefined || found.route.upload === 'takes')) return undefined;
  return { method, found, head: new KeptHead(headers, path, query), headBytes, bodyBytes };
}

/**
 * Takes the request off the socket and replies. The descriptor is given away unless this throws.
 * @param next gets the connection, by another descriptor, when the reply is out.
 */
export function servePipelined(
  services: ExchangeServices,
  connection: { readonly fd: number; readonly gate: Gate; readonly peer: Peer },
  request: PipelinedRequest,
  next: (fd: number) => void,
): void {
  const { fd, gate, peer } = connection;
  const { method, found, head, headBytes, bodyBytes } = request;
  const bytes = Buffer.alloc(headBytes + bodyBytes);
  takeFromSocket(fd, bytes, bytes.length);
  const transport = new PipelinedTransport(connection, method === 'HEAD', next);
  const objection = gate.objection(head, () => peer);
  if (found.kind !== 'route' || objection !== undefined || gate.full) {
    const refusal = refuse(found, objection, head.getQuery(), services.heads);
    transport.reply(refusal.head, refusal.body);
    services.observer?.refused(refusal.head.status);
    return;
  }
  const exchange = new HttpExchange(services, gate, transport, { found, method, head });
  exchange.body.push(bytes.subarray(headBytes), true);
  exchange.run();
  transport.onDeparture(() => exchange.abort());
}

/** This transport does not touch the socket before the reply. */
class PipelinedTransport implements Transport, LiveConnection {
  readonly idle = false;
  readonly peer: Peer;
  readonly #gate: Gate;
  readonly #isHead: boolean;
  readonly #next: (fd: number) => void;
  /** Descriptor of the connection until somebody else owns it. */
  #fd: number | undefined;
  /** The socket that sends the reply. */
  #socket: Socket | undefined;
  #departure: { cancel(): void } | undefined;
  #patience: NodeJS.Timeout | undefined;

  constructor(
    { fd, gate, peer }: { readonly fd: number; readonly gate: Gate; readonly peer: Peer },
    isHead: boolean,
    next: (fd: number) => void,
  ) {
    this.#fd = fd;
    this.#gate = gate;
    this.peer = peer;
    this.#isHead = isHead;
    this.#next = next;
    gate.connections.add(this);
  }

  pause(): void {}

  resume(): void {}

  /** Calls back when the client has been gone for a while and has no reply. */
  onDeparture(callback: () => void): void {
    if (this.#fd === undefined) return;
    this.#departure = onceEnded(this.#fd, () => {
      this.#departure = undefined;
      this.#patience = setTimeout(callback, PATIENCE_MS);
    });
  }

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    const fd = this.#take();
    // It never reads, so what is behind the request stays where it is.
    const socket = new Socket({ fd, readable: false, writable: true, allowHalfOpen: true });
    this.#socket = socket;
    socket.on('error', () => undefined);
    socket.once('close', () => this.#gate.connections.delete(this));
    socket.write(renderReply(head, body, { closing: false, isHead: this.#isHead }), (error) => {
      if (!error) this.#goOn(fd);
      socket.destroy();
    });
  }

  stream(head: ReplyHead, owner: StreamOwner, _bodyPending: boolean, unreadBytes?: number): ResponseStream {
    const fd = this.#take();
    this.#gate.connections.delete(this);
    return new RawTransport(new RawSocket(fd, unreadBytes), this.peer).stream(head, owner);
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
    this.#gate.connections.delete(this);
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
    clearTimeout(this.#patience);
    return fd;
  }
}
