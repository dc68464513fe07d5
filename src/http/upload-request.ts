/** Uploads that come first on their connection: another thread reads the body from the socket. */
import { cancelled } from '../errors/engine-error.js';
import type { SocketBody, SocketSource } from '../ports/archives.js';
import { ChunkedBody, SizedBody } from '../text/body-framing.js';
import { duplicateFd, endConnection, takeFromSocket } from '../sys/files/fd.js';
import type { DirectRequest } from './direct-request.js';
import type { Gate } from './gate.js';
import { HttpExchange, type ExchangeServices } from './http-exchange.js';
import type { Peer } from './peer.js';
import { RawSocket, RawTransport } from './raw-reply.js';
import type { ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';
import type { StreamOwner, Transport } from './transport.js';

/** Takes the head off the socket and runs its handler. The descriptor is given away unless this throws. */
export function serveUpload(
  services: ExchangeServices,
  gate: Gate,
  fd: number,
  peer: Peer,
  { found, head, headBytes, bodyBytes }: DirectRequest,
): void {
  takeFromSocket(fd, Buffer.alloc(headBytes), headBytes);
  const transport = new UploadTransport(fd, peer, bodyBytes);
  new HttpExchange(services, gate, transport, { found, method: found.route.method, head }).run();
}

/** This transport does not touch the socket before the reply, with which the connection ends. */
class UploadTransport implements Transport {
  readonly upload: SocketSource;
  /** Descriptor of the connection until somebody else owns it. */
  #fd: number | undefined;
  /** True when a reader of the socket has read from it; that reader knows how far. */
  #isLent = false;

  constructor(
    fd: number,
    readonly peer: Peer,
    private readonly length: number | undefined,
  ) {
    this.#fd = fd;
    this.upload = {
      lend: (): SocketBody => {
        if (this.#fd === undefined) throw cancelled('the client closed the connection');
        this.#isLent = true;
        return { fd: duplicateFd(this.#fd), length };
      },
    };
  }

  pause(): void {}

  resume(): void {}

  reply(head: ReplyHead, body: string | Uint8Array | undefined): void {
    this.#raw().reply(head, body);
  }

  stream(head: ReplyHead, owner: StreamOwner): ResponseStream {
    return this.#raw().stream(head, owner);
  }

  takeSocket(): never {
    throw new Error('the route does not declare that it hijacks');
  }

  abort(): void {
    const fd = this.#fd;
    this.#fd = undefined;
    if (fd !== undefined) endConnection(fd);
  }

  #raw(): RawTransport {
    const fd = this.#fd;
    if (fd === undefined) throw new Error('the connection is over');
    const { length } = this;
    const transport = new RawTransport(
      new RawSocket(fd),
      this.peer,
      this.#isLent ? undefined : length === undefined ? new ChunkedBody() : new SizedBody(length),
    );
    this.#fd = undefined;
    return transport;
  }
}
