/**
 * Requests of HTTP/1.0, which the HTTP parser refuses: nginx asks its servers so unless it is told otherwise. They are
 * read without the parser, and the connection ends with the reply, so that bytes behind a request are never taken for
 * another one.
 */
import { takeFromSocket } from '../sys/files/fd.js';
import { SizedBody } from '../text/body-framing.js';
import { ReceivingTransport } from './chunked-request.js';
import type { StatedBody } from './framing.js';
import type { Gate } from './gate.js';
import { HEAD_END, readHeaderLines, readOldRequestLine } from './header-lines.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { Peer } from './peer.js';
import { LendingSocket } from './raw-reply.js';
import { admit } from './refusal.js';
import { KeptHead } from './request-head.js';
import type { Resolution, Router } from './router.js';

export interface OldRequest {
  readonly method: string;
  readonly found: Resolution;
  readonly head: KeptHead;
  readonly headBytes: number;
  readonly bodyBytes: number;
}

/**
 * Reads the head of such a request, from its text without the empty line. Returns undefined for everything else, for a
 * body in chunks, which HTTP/1.0 does not know, and for requests that hijack: the parser refuses them.
 * @param body as `statedBody` has it.
 */
export function readOldRequest(text: string, body: StatedBody, router: Router, gate: Gate): OldRequest | undefined {
  // Nearly all requests end here.
  const end = text.indexOf('\r\n');
  if (!text.startsWith('HTTP/1.0', (end < 0 ? text.length : end) - 8) || typeof body !== 'number') return undefined;
  const line = readOldRequestLine(text);
  if (line === undefined) return undefined;
  const headers = readHeaderLines(text.split('\r\n').slice(1));
  if (headers === undefined || headers.has('expect')) return undefined;
  const { method, path, query } = line;
  const found = gate.resolve(router, method, path);
  if (found.kind === 'route' && found.route.hijack !== undefined) return undefined;
  const head = new KeptHead(headers, path, query);
  return { method, found, head, headBytes: text.length + HEAD_END.length, bodyBytes: body };
}

/** Takes the head off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveOld(services: ExchangeServices, gate: Gate, fd: number, peer: Peer, request: OldRequest): void {
  const { method, head, headBytes, bodyBytes } = request;
  takeFromSocket(fd, Buffer.alloc(headBytes), headBytes);
  const socket = new LendingSocket(fd);
  const framing = new SizedBody(bodyBytes);
  const transport = new ReceivingTransport(socket, peer, framing, { isHead: method === 'HEAD', isChunked: false });
  const found = admit(services, gate, transport, request);
  if (found === undefined) return;
  const exchange = new HttpExchange(services, gate, transport, { found, method, head });
  socket.on('close', () => exchange.settle(true));
  exchange.run();
  if (exchange.over) return;
  const take = (piece: Buffer): void => {
    if (exchange.over || framing.isComplete) return void socket.off('data', take);
    const length = framing.extract(piece.subarray(0, Math.min(piece.length, framing.wantedBytes)));
    exchange.body.push(piece.subarray(0, length), framing.isComplete);
  };
  socket.on('data', take);
  socket.on('end', () => {
    if (!framing.isComplete && !exchange.over) exchange.abort();
  });
  socket.resume();
}
