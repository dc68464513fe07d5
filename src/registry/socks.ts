/** Connects through a SOCKS5 proxy (RFC 1928, with user and password as in RFC 1929). The proxy resolves the names. */
import { Agent as HttpAgent, type AgentOptions } from 'node:http';
import { connect, isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type EngineError, internal } from '../errors/engine-error.js';
import { addressBytes } from '../sys/net/ip-address.js';

const DEFAULT_PORT = 1080;
const CONNECT_TIMEOUT_MS = 30_000;
const VERSION = 5;
const NO_LOGIN = 0;
const USER_AND_PASSWORD = 2;
const COMMAND_CONNECT = 1;
const IPV4_ADDRESS = 1;
const IPV6_ADDRESS = 4;
const ADDRESS_LENGTHS: Readonly<Record<number, number>> = { [IPV4_ADDRESS]: 4, [IPV6_ADDRESS]: 16 };
const NAME_ADDRESS = 3;
const REPLIES = [
  '',
  'general failure',
  'not allowed by its rules',
  'network unreachable',
  'host unreachable',
  'connection refused',
  'TTL expired',
  'command not supported',
  'address type not supported',
];

export function isSocks({ protocol }: URL): boolean {
  return protocol === 'socks5:' || protocol === 'socks5h:';
}

/**
 * Resolves with a connection to the target that the proxy made. Rejects with an EngineError that says what it refused.
 */
export async function connectThroughSocks(proxy: URL, host: string, port: number): Promise<Socket> {
  const socket = connect({
    host: proxy.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(proxy.port) || DEFAULT_PORT,
  });
  const failed = (message: string, retryable: boolean, cause?: unknown): EngineError =>
    internal(`proxy ${proxy.host}: ${message}`, {
      code: 'PROXY_REFUSED',
      details: { retryable },
      ...(cause === undefined ? {} : { cause }),
    });
  socket.setTimeout(CONNECT_TIMEOUT_MS, () => socket.destroy(new Error('timeout while connecting')));
  const reader = new Reader(socket);
  try {
    const [user, password] = [decodeURIComponent(proxy.username), decodeURIComponent(proxy.password)];
    const hasLogin = user !== '' || password !== '';
    socket.write(Buffer.from(hasLogin ? [VERSION, 2, NO_LOGIN, USER_AND_PASSWORD] : [VERSION, 1, NO_LOGIN]));
    const [version, method] = await reader.take(2);
    if (version !== VERSION) throw failed('it does not speak SOCKS5', false);
    if (method === USER_AND_PASSWORD && hasLogin) {
      socket.write(Buffer.concat([Buffer.from([1]), withLength(user), withLength(password)]));
      const [, status] = await reader.take(2);
      if (status !== 0) throw failed('it refused user and password', false);
    } else if (method !== NO_LOGIN) throw failed('it wants another login', false);

    socket.write(
      Buffer.concat([
        Buffer.from([VERSION, COMMAND_CONNECT, 0]),
        destination(host),
        Buffer.from([port >> 8, port & 0xff]),
      ]),
    );
    const [, reply = 1, , type = 0] = await reader.take(4);
    if (reply !== 0)
      throw failed(`connection to ${host}:${port} refused: ${REPLIES[reply] ?? `reply ${reply}`}`, reply !== 2);
    const length = type === NAME_ADDRESS ? (await reader.take(1))[0] : ADDRESS_LENGTHS[type];
    if (length === undefined) throw failed('its answer makes no sense', false);
    await reader.take(length + 2);
    reader.release();
    socket.setTimeout(0).removeAllListeners('timeout');
    return socket;
  } catch (error) {
    socket.destroy();
    throw error instanceof Error && 'kind' in error ? error : failed((error as Error).message, true, error);
  }
}

function withLength(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([bytes.length & 0xff]), bytes.subarray(0, 0xff)]);
}

function destination(host: string): Buffer {
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  const family = isIP(bare);
  if (family === 0) return Buffer.concat([Buffer.from([NAME_ADDRESS]), withLength(host)]);
  return Buffer.concat([Buffer.from([family === 4 ? IPV4_ADDRESS : IPV6_ADDRESS]), addressBytes(bare)]);
}

/** Reads exact counts of bytes and none beyond them, because the rest is for the connection's next user. */
class Reader {
  readonly #socket: Socket;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;
  readonly #onReadable = (): void => this.#wake?.();
  readonly #onEnd = (error?: Error | boolean): void => {
    this.#failure ??= error instanceof Error ? error : new Error('it closed the connection');
    this.#wake?.();
  };

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('readable', this.#onReadable).on('error', this.#onEnd).on('close', this.#onEnd).on('end', this.#onEnd);
  }

  async take(count: number): Promise<Buffer> {
    for (;;) {
      const taken = this.#socket.read(count) as Buffer | null;
      if (taken?.length === count) return taken;
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  release(): void {
    this.#socket
      .off('readable', this.#onReadable)
      .off('error', this.#onEnd)
      .off('close', this.#onEnd)
      .off('end', this.#onEnd);
  }
}

/** An agent for plain HTTP through the proxy. */
export class SocksAgent extends HttpAgent {
  constructor(
    private readonly proxy: URL,
    options: AgentOptions,
  ) {
    super(options);
  }

  override createConnection(
    options: { readonly host?: string | null; readonly port?: number | string | null },
    done: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    connectThroughSocks(this.proxy, options.host ?? '', Number(options.port ?? 80)).then(
      (socket) => done(null, socket),
      (error: unknown) => done(error as Error, undefined as never),
    );
    return undefined;
  }
}
