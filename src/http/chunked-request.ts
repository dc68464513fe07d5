/**
 * Reads requests with a body in chunks that come first on their connection. The HTTP parser for other requests takes
 * trailers for a next request and accepts any line ends. Here a body that is not well formed is refused, and the
 * connection ends with the reply, so that bytes behind a body are never taken for a request.
 */
import type { EngineError } from '../errors/engine-error.js';
import { takeFromSocket } from '../sys/files/fd.js';
import { ChunkedBody, type BodyFraming } from '../text/body-framing.js';
import type { DirectRequest } from './direct-request.js';
import type { Gate } from './gate.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { Peer } from './peer.js';
import { LendingSocket, RawTransport, type RawSocket, type ReplyForm } from './raw-reply.js';

/** Takes the head off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveChunked(
  services: ExchangeServices,
  gate: Gate,
  fd: number,
  peer: Peer,
  { found, head, headBytes }: DirectRequest,
): void {
  takeFromSocket(fd, Buffer.alloc(headBytes), headBytes);
  const socket = new LendingSocket(fd);
  const framing = new ChunkedBody();
  const transport = new ReceivingTransport(socket, peer, framing);
  const exchange = new HttpExchange(services, gate, transport, { found, method: found.route.method, head });
  socket.on('close', () => exchange.settle(true));
  exchange.run();
  if (exchange.over) return;
  const take = (piece: Buffer): void => {
    if (exchange.over) return void socket.off('data', take);
    try {
      const length = framing.extract(piece);
      exchange.body.push(piece.subarray(0, length), framing.isComplete);
    } catch (error) {
      socket.off('data', take);
      exchange.body.fail(error as EngineError);
    }
  };
  socket.on('data', take);
  socket.on('end', () => {
    if (!framing.isComplete && !exchange.over) exchange.abort();
  });
  socket.resume();
}

/** This transport lets its reader stop the body of the request, which comes from the raw socket. */
export class ReceivingTransport extends RawTransport {
  readonly #socket: RawSocket;

  constructor(socket: RawSocket, peer: Peer, body: BodyFraming, form?: ReplyForm) {
    super(socket, peer, body, form);
    this.#socket = socket;
  }

  override pause(): void {
    this.#socket.pause();
  }

  override resume(): void {
    this.#socket.resume();
  }
}
