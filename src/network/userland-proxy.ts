/** Passes connections and datagrams from a bound socket on to a container. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, createServer, isIPv4 } from 'node:net';

export interface ProxyTarget {
  readonly host: string;
  readonly port: number;
}

/** An idle UDP peer is forgotten after this time. */
const UDP_SESSION_MS = 90_000;
/** Datagrams of further peers are dropped. */
const MAX_UDP_SESSIONS = 1024;

/** The connections of proxies that take no further ones. */
export interface UnderWay {
  /** Those that have ended since. */
  ended: number;
  /** Those that the container has not taken yet. The kernel tries again after one second, three and seven. */
  waiting: number;
}

export interface Proxy {
  /** Closes the socket; connections under way go on. */
  readonly close: () => void;
  /** Does the same as `close`; resolves when the connections under way are over, and keeps count of them. */
  readonly rest: (underWay: UnderWay) => Promise<void>;
}

/** Serves a listening socket, which it owns. */
export function proxyTcp(fd: number, _hostIp: string, target: ProxyTarget): Proxy {
  let underWay: UnderWay = { ended: 0, waiting: 0 };
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    const upstream = connect({ ...target, allowHalfOpen: true });
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
    let isWaiting = true;
    underWay.waiting++;
    const taken = (): void => {
      if (isWaiting) underWay.waiting--;
      isWaiting = false;
    };
    upstream.on('connect', () => {
      taken();
      client.pipe(upstream);
      upstream.pipe(client);
    });
    client.on('close', () => {
      upstream.destroy();
      underWay.ended++;
    });
    upstream.on('close', () => {
      taken();
      client.destroy();
    });
  });
  // A failure, such as too many open descriptors, loses this client only.
  server.on('error', () => undefined);
  server.listen({ fd });
  return {
    close: () => void server.close(),
    rest: (all) => {
      all.waiting += underWay.waiting;
      underWay = all;
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/** Serves a datagram socket, which it owns; each peer has its own socket to the container. */
export function proxyUdp(fd: number, hostIp: string, target: ProxyTarget): Proxy {
  const server = createSocket(isIPv4(hostIp) ? 'udp4' : 'udp6');
  const sessions = new Map<string, { readonly socket: UdpSocket; readonly timer: NodeJS.Timeout }>();
  server.on('message', (message, peer) => {
    const key = `${peer.address} ${peer.port}`;
    let session = sessions.get(key);
    if (!session) {
      if (sessions.size >= MAX_UDP_SESSIONS) return;
      const socket = createSocket(isIPv4(target.host) ? 'udp4' : 'udp6');
      const end = (): void => {
        sessions.delete(key);
        socket.close();
      };
      session = { socket, timer: setTimeout(end, UDP_SESSION_MS).unref() };
      sessions.set(key, session);
      socket.on('message', (answer) => {
        session?.timer.refresh();
        server.send(answer, peer.port, peer.address, () => undefined);
      });
      // Nobody listens there, and a datagram may be lost.
      socket.on('error', () => undefined);
    }
    session.timer.refresh();
    session.socket.send(message, target.port, target.host, () => undefined);
  });
  server.on('error', () => undefined);
  server.bind({ fd });
  let isClosed = false;
  const close = (): void => {
    if (isClosed) return;
    isClosed = true;
    for (const { socket, timer } of sessions.values()) {
      clearTimeout(timer);
      socket.close();
    }
    sessions.clear();
    server.close();
  };
  // Nobody knows which datagrams are awaited.
  return { close, rest: async () => close() };
}
