/** Asks other servers, one after another, over datagrams or a stream. */
import { randomInt } from 'node:crypto';
import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { isIPv6, Socket } from 'node:net';
import { bindPort, streamSocket } from '../../sys/net/port-socket.js';
import { answersQuestion, type Query } from './message.js';
import { frame, Frames } from './stream-frames.js';

export interface Upstream {
  readonly address: string;
  /** Runs a function in the network namespace that the server is asked from. */
  readonly within: <T>(work: () => T) => T;
}

const PORT = 53;
/** A server may take this long until the next one is asked. */
const TIMEOUT_MS = 2000;
/** At most so many questions wait, so that a silent server does not fill the memory. */
const MAX_PENDING = 1024;
/** A question over a stream takes a descriptor of the daemon, so fewer of these wait. */
const MAX_STREAMS = 32;
const BURST = 16;
/** A socket that nobody needs is closed after this time; the next one has another port, which is harder to guess. */
const IDLE_MS = 10_000;

/** Forwards the questions of the clients of one sandbox. */
export class Forwarder {
  readonly #channels = new Map<Upstream, Channel>();
  /** Questions that are still to be sent. */
  #queue: (() => void)[] = [];
  #pending = 0;
  #streams = 0;

  constructor(readonly upstreams: readonly Upstream[]) {}

  /**
   * Returns the reply of the first server that gives one; undefined when none does, or when too many questions wait
   * already.
   */
  async ask(query: Query, isStream: boolean): Promise<Buffer | undefined> {
    if (this.#pending >= MAX_PENDING || (isStream && this.#streams >= MAX_STREAMS)) return undefined;
    this.#pending++;
    if (isStream) this.#streams++;
    try {
      await this.#turn();
      for (const upstream of this.upstreams) {
        const reply = await (isStream ? askStream(upstream, query) : this.#channel(upstream).ask(query)).catch(
          () => undefined,
        );
        if (reply) return reply;
      }
      return undefined;
    } finally {
      this.#pending--;
      if (isStream) this.#streams--;
    }
  }

  /**
   * Waits for the turn of a question. A burst is sent in small parts, so that questions that we can answer ourselves
   * come in between.
   */
  #turn(): Promise<void> {
    return new Promise((resolve) => {
      this.#queue.push(resolve);
      if (this.#queue.length === 1) setImmediate(() => this.#sendSome());
    });
  }

  #sendSome(): void {
    for (const start of this.#queue.splice(0, BURST)) start();
    if (this.#queue.length > 0) setImmediate(() => this.#sendSome());
  }

  close(): void {
    for (const channel of this.#channels.values()) channel.close();
    this.#channels.clear();
  }

  #channel(upstream: Upstream): Channel {
    let channel = this.#channels.get(upstream);
    if (!channel) {
      channel = new Channel(upstream, () => this.#channels.delete(upstream));
      this.#channels.set(upstream, channel);
    }
    return channel;
  }
}

interface Pending {
  readonly query: Query;
  readonly settle: (reply: Buffer | undefined) => void;
}

/** A socket to one server; replies are matched by ID and question. It closes itself when it is idle or fails. */
class Channel {
  readonly #pending = new Map<number, Pending>();
  readonly #socket: DatagramSocket;
  readonly #connected: Promise<void>;
  readonly #idle: NodeJS.Timeout;
  #isClosed = false;

  constructor(
    { address, within }: Upstream,
    private readonly onClosed: () => void,
  ) {
    const { fd } = within(() => bindPort('udp', isIPv6(address) ? '::' : '0.0.0.0', 0));
    this.#socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
    this.#idle = setTimeout(() => this.close(), IDLE_MS).unref();
    // The server refuses or cannot be reached, so nobody needs to wait for the time limit.
    this.#socket.on('error', () => this.close());
    this.#socket.on('message', (message) => this.#receive(message));
    this.#connected = new Promise((resolve) =>
      this.#socket.bind({ fd }, () => this.#socket.connect(PORT, address, resolve)),
    );
  }

  /** Returns the reply; undefined when there is none in time. */
  async ask(query: Query): Promise<Buffer | undefined> {
    this.#idle.refresh();
    let id = randomInt(0x10000);
    while (this.#pending.has(id)) id = (id + 1) & 0xffff;
    const reply = new Promise<Buffer | undefined>((resolve) => {
      const timer = setTimeout(() => settle(undefined), TIMEOUT_MS);
      const settle = (message: Buffer | undefined): void => {
        clearTimeout(timer);
        this.#pending.delete(id);
        resolve(message);
      };
      this.#pending.set(id, { query, settle });
    });
    await Promise.race([this.#connected, reply]);
    if (!this.#isClosed) this.#socket.send(withId(query.bytes, id), () => undefined);
    return reply;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#idle);
    for (const { settle } of this.#pending.values()) settle(undefined);
    this.#socket.close();
    this.onClosed();
  }

  #receive(message: Buffer): void {
    if (message.length < 2) return;
    const pending = this.#pending.get(message.readUInt16BE(0));
    if (pending && answersQuestion(message, pending.query)) pending.settle(withId(message, pending.query.id));
  }
}

/**
 * Asks over a connection of its own for each question: such questions are rare, mostly zone transfers and large
 * answers.
 */
function askStream({ address, within }: Upstream, query: Query): Promise<Buffer | undefined> {
  const socket = new Socket({ fd: within(() => streamSocket(isIPv6(address) ? 6 : 4)) });
  const frames = new Frames();
  return new Promise<Buffer | undefined>((resolve) => {
    socket.setTimeout(TIMEOUT_MS, () => socket.destroy());
    socket.on('error', () => resolve(undefined));
    socket.on('close', () => resolve(undefined));
    socket.on('data', (chunk) => {
      for (const message of frames.take(chunk))
        if (message.length >= 2 && message.readUInt16BE(0) === query.id && answersQuestion(message, query))
          resolve(message);
    });
    socket.connect(PORT, address, () => socket.write(frame(query.bytes)));
  }).finally(() => socket.destroy());
}

function withId(message: Buffer, id: number): Buffer {
  const copy = Buffer.from(message);
  copy.writeUInt16BE(id, 0);
  return copy;
}
