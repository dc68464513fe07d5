/** The name server of one sandbox, at 127.0.0.11 inside it; it runs in this process. */
import { createServer, type Server, type Socket } from 'node:net';
import { isEngineError } from '../../errors/engine-error.js';
import { RESOLVER_ADDRESS } from '../../ports/network.js';
import { answerDatagrams, sendDatagram } from '../../sys/net/datagrams.js';
import { closeFd, watchReadable, type ReadableWatch } from '../../sys/files/fd.js';
import { growBuffer } from '../../sys/net/buffer-size.js';
import { bindPort, type PortSocket } from '../../sys/net/port-socket.js';
import { RedirectSocket } from '../../sys/netlink/nft-redirect.js';
import { Forwarder, type Upstream } from './forwarder.js';
import { buildReply, parseQuery, RCODE, writeFormatError, writeReply, type Answer, type Query } from './message.js';
import { frame, Frames } from './stream-frames.js';

/** The kernel keeps some thousand questions in this buffer. */
const RECEIVE_BUFFER_BYTES = 1 << 20;
const DNS_PORT = 53;
const MAX_CONNECTIONS = 64;
const MAX_UNREAD_BYTES = 1 << 18;
const CONNECTION_IDLE_MS = 10_000;

export interface ResolverOptions {
  /** Runs a function inside the sandbox's network namespace. */
  readonly inside: <T>(work: () => T) => T;
  /** Returns answers about the sandbox's own networks; undefined for names that are not theirs. */
  readonly answer: (name: string, type: number) => Answer[] | undefined;
  /** Returns the servers to ask; called at each question, because networks come and go. Empty: nothing is forwarded. */
  readonly upstreams: () => readonly Upstream[];
}

interface Pair {
  readonly datagrams: PortSocket;
  readonly stream: PortSocket;
}

export class Resolver {
  readonly #datagrams: number;
  readonly #watch: ReadableWatch;
  readonly #server: Server;
  readonly #connections = new Set<Socket>();
  #forwarder = new Forwarder([]);
  #isClosed = false;

  private constructor(
    private readonly options: ResolverOptions,
    { datagrams, stream }: Pair,
  ) {
    this.#datagrams = datagrams.fd;
    this.#watch = watchReadable(datagrams.fd, () => answerDatagrams(datagrams.fd, this.#answerDatagram));
    this.#server = createServer((client) => this.#serve(client));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('error', () => undefined);
    this.#server.listen({ fd: stream.fd });
  }

  /**
   * Opens the sockets inside the sandbox. They have free ports, and the kernel leads packets for port 53 to them: so a
   * name server of the container can have port 53. Without nftables in the kernel, the sockets are on port 53.
   */
  static async open(options: ResolverOptions): Promise<Resolver> {
    const open = (port: number): Pair => {
      const datagrams = bindPort('udp', RESOLVER_ADDRESS, port);
      try {
        growBuffer(datagrams.fd, 'receive', RECEIVE_BUFFER_BYTES);
        return { datagrams, stream: bindPort('tcp', RESOLVER_ADDRESS, port) };
      } catch (error) {
        closeFd(datagrams.fd);
        throw error;
      }
    };
    const [redirects, pair] = options.inside(() => [new RedirectSocket(), open(0)] as const);
    try {
      await redirects.apply(RESOLVER_ADDRESS, [
        { protocol: 'udp', port: DNS_PORT, to: pair.datagrams.port },
        { protocol: 'tcp', port: DNS_PORT, to: pair.stream.port },
      ]);
      return new Resolver(options, pair);
    } catch (error) {
      for (const { fd } of [pair.datagrams, pair.stream]) closeFd(fd);
      if (!isEngineError(error)) throw error;
      return new Resolver(
        options,
        options.inside(() => open(DNS_PORT)),
      );
    } finally {
      redirects.close();
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#watch.close();
    closeFd(this.#datagrams);
    this.#server.close();
    for (const client of this.#connections) client.destroy();
    this.#forwarder.close();
  }

  /** Answers a datagram. Own names are answered at once; questions to others do not delay them. */
  readonly #answerDatagram = (slot: Buffer, length: number, peer: Buffer): number => {
    const query = parseQuery(slot.subarray(0, length));
    if (query === undefined) return 0;
    if (query === 'bad') return writeFormatError(slot);
    const answers = this.options.answer(query.name, query.type);
    if (answers) return writeReply(slot, query, RCODE.ok, answers, false);
    const asker = Buffer.from(peer);
    void this.#forward({ ...query, bytes: Buffer.from(query.bytes) }, false).then((reply) => {
      if (!this.#isClosed) sendDatagram(this.#datagrams, reply, asker);
    });
    return 0;
  };

  async #answerMessage(message: Buffer): Promise<Buffer | undefined> {
    const query = parseQuery(message);
    if (query === undefined) return undefined;
    if (query === 'bad') return message.subarray(0, writeFormatError(message));
    const answers = this.options.answer(query.name, query.type);
    return answers ? buildReply(query, RCODE.ok, answers, true) : this.#forward(query, true);
  }

  async #forward(query: Query, isStream: boolean): Promise<Buffer> {
    const upstreams = this.options.upstreams();
    if (
      upstreams.length !== this.#forwarder.upstreams.length ||
      upstreams.some((upstream, index) => upstream !== this.#forwarder.upstreams[index])
    ) {
      this.#forwarder.close();
      this.#forwarder = new Forwarder(upstreams);
    }
    return (await this.#forwarder.ask(query, isStream)) ?? buildReply(query, RCODE.serverFailure, [], isStream);
  }

  #serve(client: Socket): void {
    const frames = new Frames();
    this.#connections.add(client);
    client.on('close', () => this.#connections.delete(client));
    client.on('error', () => client.destroy());
    client.setTimeout(CONNECTION_IDLE_MS, () => client.destroy());
    client.on('data', (chunk) => {
      for (const message of frames.take(chunk)) {
        void this.#answerMessage(message).then((reply) => {
          if (!reply || !client.writable) return;
          client.write(frame(reply));
          // A client that asks and does not read must not fill our memory.
          if (client.writableLength > MAX_UNREAD_BYTES) client.destroy();
        });
      }
    });
  }
}
