/**
 * Requests that hijack and come first on their connection, as nearly all do. The HTTP parser would take what the client
 * sent right behind such a request for another request, so these are read here, exactly up to their end.
 */
import { takeFromSocket } from '../sys/fd.js';
import type { Gate } from './gate.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { Peer } from './peer.js';
import { RawSocket, RawTransport } from './raw-reply.js';
import { KeptHead, type RequestHead } from './request-head.js';
import type { RouteMatch, Router } from './router.js';

/** The largest body before a hijack: exec start has a few dozen bytes. */
export const MAX_HIJACK_BODY_BYTES = 1024 * 1024;

export interface HijackRequest {
  readonly found: RouteMatch;
  readonly head: KeptHead;
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/**
 * Reads the head of a POST that hijacks. Undefined for everything else and for whatever is unusual, incomplete or
 * wrong: the parser of all other requests judges that.
 */
export function readHijackRequest(received: Buffer, router: Router, gate: Gate, peer: () => Peer): HijackRequest | undefined {
  if (received.toString('latin1', 0, 5) !== 'POST ') return undefined;
  const end = received.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [line = '', ...headerLines] = received.toString('latin1', 0, end).split('\r\n');
  const target = /^POST (\/[!-~]*) HTTP\/1\.1$/.exec(line)?.[1];
  if (target === undefined) return undefined;
  const queryStart = target.indexOf('?');
  const path = queryStart < 0 ? target : target.slice(0, queryStart);
  const found = gate.resolve(router, 'POST', path);
  if (found.kind !== 'route' || found.route.hijack === undefined) return undefined;

  const headers = new Map<string, string>();
  for (const headerLine of headerLines) {
    const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*$/.exec(headerLine) ?? [];
    if (name === undefined || value === undefined || headers.has(name.toLowerCase())) return undefined;
    headers.set(name.toLowerCase(), value);
  }
  const length = headers.get('content-length') ?? '0';
  if (!headers.has('host') || headers.has('transfer-encoding') || headers.has('expect')) return undefined;
  if (!/^\d{1,7}$/.test(length) || Number(length) > MAX_HIJACK_BODY_BYTES) return undefined;
  const head = new KeptHead(headers, path, queryStart < 0 ? undefined : target.slice(queryStart + 1));
  if (gate.objection(head, peer) !== undefined) return undefined;
  return { found, head, headBytes: end + 4, bodyBytes: Number(length) };
}

/** Takes the request off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveHijackRequest(services: ExchangeServices, gate: Gate, fd: number, peer: Peer, request: HijackRequest): void {
  takeFromSocket(fd, Buffer.alloc(request.headBytes), request.headBytes);
  const socket = new RawSocket(fd);
  const connection = { idle: true, close: () => void socket.destroy() };
  gate.connections.add(connection);
  socket.once('close', () => gate.connections.delete(connection));
  const start = (): void => {
    // Bytes behind the body stay in the socket for whoever hijacks it.
    const body = request.bodyBytes === 0 ? Buffer.alloc(0) : (socket.read(request.bodyBytes) as Buffer | null);
    if (body === null) return;
    socket.removeListener('readable', start);
    gate.connections.delete(connection);
    runOnRawSocket(services, gate, socket, peer, request.found, 'POST', request.head, body);
  };
  if (request.bodyBytes > 0) socket.on('readable', start);
  start();
}

/** Runs a handler on a connection that no longer has a parser. */
export function runOnRawSocket(
  services: ExchangeServices,
  gate: Gate,
  socket: RawSocket,
  peer: Peer,
  found: RouteMatch,
  method: string,
  head: RequestHead,
  body: Buffer,
): void {
  const exchange = new HttpExchange(services, gate, new RawTransport(socket, peer), found, method, head);
  exchange.body.push(body, true);
  socket.on('close', () => exchange.settle(true));
  exchange.run();
}
