/**
 * Requests that hijack and come first on their connection, as nearly all of them do: they are read exactly up to their
 * end.
 */
import { takeFromSocket } from '../sys/files/fd.js';
import type { DirectRequest } from './direct-request.js';
import type { Gate } from './gate.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { RoutedRequest } from './incoming-request.js';
import type { Peer } from './peer.js';
import { RawSocket, RawTransport } from './raw-reply.js';

/** Takes the request off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveHijackRequest(
  services: ExchangeServices,
  gate: Gate,
  fd: number,
  peer: Peer,
  { found, head, headBytes, bodyBytes = 0 }: DirectRequest,
): void {
  takeFromSocket(fd, Buffer.alloc(headBytes), headBytes);
  const socket = new RawSocket(fd);
  const connection = { idle: true, close: () => void socket.destroy() };
  gate.connections.add(connection);
  socket.once('close', () => gate.connections.delete(connection));
  const start = (): void => {
    // Bytes behind the body stay in the socket for the handler that hijacks it.
    const body = bodyBytes === 0 ? Buffer.alloc(0) : (socket.read(bodyBytes) as Buffer | null);
    if (body === null) return;
    socket.removeListener('readable', start);
    gate.connections.delete(connection);
    runOnRawSocket(services, gate, { socket, peer }, { found, method: 'POST', head, body });
  };
  if (bodyBytes > 0) {
    socket.on('readable', start);
    // The client has said that it sends no more, so nobody waits for the reply to a body that will not come.
    socket.once('end', () => gate.connections.has(connection) && socket.destroy());
  }
  start();
}

/** A request whose body has arrived as a whole. */
export interface WholeRequest extends RoutedRequest {
  readonly body: Buffer;
}

/** Runs a handler on a connection that no longer has a parser. */
export function runOnRawSocket(
  services: ExchangeServices,
  gate: Gate,
  { socket, peer }: { readonly socket: RawSocket; readonly peer: Peer },
  request: WholeRequest,
): void {
  const exchange = new HttpExchange(services, gate, new RawTransport(socket, peer), request);
  exchange.body.push(request.body, true);
  socket.on('close', () => exchange.settle(true));
  exchange.run();
}
