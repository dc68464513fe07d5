/**
 * Requests that the HTTP parser refuses: those of HTTP/1.0, as nginx asks its servers unless it is told otherwise, and
 * those with an absolute target, which clients send to proxies and servers have to take. They are read without it, and
 * the connection ends with the reply, so that bytes behind a request are never taken for another one.
 */
import { takeFromSocket } from '../sys/files/fd.js';
import { SizedBody } from '../text/body-framing.js';
import { ReceivingTransport } from './chunked-request.js';
import type { StatedBody } from './framing.js';
import type { Gate } from './gate.js';
import { HEAD_END, isOriginForm, readAnyRequestLine, readHeaders } from './header-lines.js';
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
  /** Its client speaks HTTP 1.0 and knows no chunks. */
  readonly isOld: boolean;
}

/**
 * Reads the head of such a request, from its text without the empty line. Returns undefined for everything else, for a
 * body in chunks, which HTTP/1.0 does not know, and for requests that hijack: the parser refuses them.
 * @param body as `statedBody` has it.
 */
export function readOldRequest(text: string, body: StatedBody, router: Router, gate: Gate): OldRequest | undefined {
  // Nearly all requests end here.
  const end = text.indexOf('\r\n');
  const isOld = text.startsWith('HTTP/1.0', (end < 0 ? text.length : end) - 8);
  if ((!isOld && isOriginForm(text)) || typeof body !== 'number') return undefined;
  const line = readAnyRequestLine(text);
  const headers = line && readHeaders(text, line);
  if (line === undefined || headers === undefined || headers.has('expect')) return undefined;
  const { method, path, query } = line;
  const found = gate.resolve(router, method, path);
  if (found.kind === 'route' && found.route.hijack !== undefined) return undefined;
  const head = new KeptHead(headers, path, query);
  return { method, found, head, headBytes: text.length + HEAD_END.length, bodyBytes: body, isOld };
}

/** Takes the head off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveOld(services: ExchangeServices, gate: Gate, fd: number, peer: Peer, request: OldRequest): void {
  const { method, head, headBytes, bodyBytes, isOld } = request;
  takeFromSocket(fd, Buffer.alloc(headBytes), headBytes);
  const socket = new LendingSocket(fd);
  const framing = new SizedBody(bodyBytes);
  const transport = new ReceivingTransport(socket, peer, framing, { isHead: method === 'HEAD', isChunked: !isOld });
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
