/** Connects to remote logs, with the error texts that users know from the existing engine. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { connect, isIPv6, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import { internal, isEngineError, messageOf } from '../../errors/engine-error.js';
import { atNamedSocket } from '../../sys/net/named-socket.js';

/** A server that works answers within this time. */
const CONNECT_MS = 10_000;

const TEXTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connect: connection refused',
  ECONNRESET: 'connect: connection reset by peer',
  ENOENT: 'connect: no such file or directory',
  EACCES: 'connect: permission denied',
  EHOSTUNREACH: 'connect: no route to host',
  ENETUNREACH: 'connect: network is unreachable',
  EPROTOTYPE: 'connect: protocol wrong type for socket',
  ETIMEDOUT: 'i/o timeout',
};

export type StreamTarget =
  | { readonly network: 'tcp'; readonly host: string; readonly port: number; readonly tls?: ConnectionOptions }
  | { readonly network: 'unix'; readonly path: string };

/** Opens a stream. @throws EngineError internal, such as `dial tcp 127.0.0.1:514: connect: connection refused`. */
export async function dialStream(target: StreamTarget, signal: AbortSignal): Promise<Socket> {
  if (target.network === 'tcp') return connected(connectTcp(target), target, signal);
  // It is listened to from the turn on in which it begins to connect, as a server of this machine accepts it at once.
  return atNamedSocket(target.path, (path) => connected(connect(path), target, signal)).catch((error: Error) => {
    throw isEngineError(error) ? error : dialError(target, error);
  });
}

function connectTcp({ host, port, tls }: Extract<StreamTarget, { network: 'tcp' }>): Socket {
  if (tls === undefined) return connect(port, host);
  return connectTls({ host, port, servername: /^[\d.]+$|:/.test(host) ? '' : host, ...tls });
}

/** Waits until a socket is connected to its target. @throws EngineError internal as `dialStream`. */
function connected(socket: Socket, target: StreamTarget, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const isTls = target.network === 'tcp' && target.tls !== undefined;
    const fail = (error: Error): void => {
      done();
      socket.destroy();
      reject(dialError(target, error));
    };
    const onAbort = (): void => fail(new Error('the log is closed'));
    const onTimeout = (): void => fail(Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' }));
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      socket.removeListener('error', fail);
      // A close follows every later error and reports it.
      socket.on('error', () => undefined);
    };
    const timer = setTimeout(onTimeout, CONNECT_MS);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) return onAbort();
    socket.once('error', fail);
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      done();
      resolve(socket);
    });
  });
}

/** Opens a UDP socket and connects it to its target, so that it gets an error when nobody listens on the port. */
export async function dialUdp(host: string, port: number): Promise<UdpSocket> {
  const where = { network: 'udp', host, port } as const;
  const { address } = await lookup(host === '' ? 'localhost' : host).catch((error: Error) => {
    throw dialError(where, error);
  });
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  return new Promise((resolve, reject) => {
    socket.once('error', (error) => {
      socket.close();
      reject(dialError(where, error));
    });
    socket.connect(port, address, () => {
      socket.removeAllListeners('error');
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}

function dialError(
  target: StreamTarget | { readonly network: 'udp'; readonly host: string; readonly port: number },
  error: Error,
): Error {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  const name =
    target.network === 'unix'
      ? target.path
      : `${target.host.includes(':') ? `[${target.host}]` : target.host}:${target.port}`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    const reason = code === 'ENOTFOUND' ? 'no such host' : 'temporary failure in name resolution';
    return internal(`dial ${target.network}: lookup ${target.network === 'unix' ? '' : target.host}: ${reason}`, {
      code,
      cause: error,
    });
  }
  const text = TEXTS[code];
  return internal(text === undefined ? messageOf(error) : `dial ${target.network} ${name}: ${text}`, {
    code,
    cause: error,
  });
}
