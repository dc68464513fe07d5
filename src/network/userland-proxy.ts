/** Passes connections and datagrams from a bound socket on to a container. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, isIPv4, Socket } from 'node:net';
import { type MovedConnection, ProxiedConnection, type ProxyTarget } from './proxied-connection.js';
import { proxyBudget } from './proxy-budget.js';
import type { UnderWay } from './under-way.js';

/** An idle UDP peer is forgotten after this time. */
const UDP_SESSION_MS = 90_000;
/** Datagrams of further peers are dropped. */
const MAX_UDP_SESSIONS = 1024;
/** Descriptors of a connection. */
const TCP_SOCKETS = 2;

export interface Proxy {
  /** Closes the socket; connections under way go on. */
  readonly close: () => void;
  /** Does the same as `close`; resolves when the connections under way are over, and keeps count of them. */
  readonly rest: (underWay: UnderWay) => Promise<void>;
  /** Closes the socket, and gives the connections under way away: the next process goes on with them. */
  readonly leave: () => readonly MovedConnection[];
}

/** Serves a listening socket, which it owns. @param earlier connections of the process that had it before. */
export function proxyTcp(
  fd: number,
  _hostIp: string,
  target: ProxyTarget,
  earlier: readonly MovedConnection[] = [],
): Proxy {
  const connections = new Set<ProxiedConnection>();
  let underWay: UnderWay = { ended: 0, waiting: 0 };
  let onIdle: (() => void) | undefined;
  const serve = (client: Socket | MovedConnection): void => {
    if (!(client instanceof Socket)) proxyBudget.takeMore(TCP_SOCKETS);
    else if (!proxyBudget.take(TCP_SOCKETS)) return void client.destroy();
    let isWaiting = true;
    underWay.waiting++;
    const taken = (): void => {
      if (isWaiting) underWay.waiting--;
      isWaiting = false;
    };
    const connection = new ProxiedConnection(client, target, {
      taken,
      ended: () => {
        taken();
        proxyBudget.giveBack(TCP_SOCKETS);
        underWay.ended++;
        connections.delete(connection);
        if (connections.size === 0) onIdle?.();
      },
    });
    connections.add(connection);
  };
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, serve);
  // A failure, such as too many open descriptors, loses this client only.
  server.on('error', () => undefined);
  server.listen({ fd });
  for (const connection of earlier) serve(connection);
  return {
    close: () => void server.close(),
    rest: (all) => {
      server.close();
      all.waiting += underWay.waiting;
      underWay = all;
      return new Promise((resolve) => {
        onIdle = resolve;
        if (connections.size === 0) resolve();
      });
    },
    leave: () => {
      server.close();
      return [...connections].flatMap((connection) => connection.move() ?? []);
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
      if (sessions.size >= MAX_UDP_SESSIONS || !proxyBudget.take(1)) return;
      const socket = createSocket(isIPv4(target.host) ? 'udp4' : 'udp6');
      const end = (): void => {
        sessions.delete(key);
        proxyBudget.giveBack(1);
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
      proxyBudget.giveBack(1);
      socket.close();
    }
    sessions.clear();
    server.close();
  };
  // Nobody knows which datagrams are awaited.
  const leave = (): readonly MovedConnection[] => {
    close();
    return [];
  };
  return { close, rest: async () => close(), leave };
}
