/**
 * Published ports on the host's side. A real socket holds each port before success is reported, so a clash is found by
 * the kernel. The holder also serves what rules cannot: connections to loopback addresses are passed on to the container.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, createServer, type Server } from 'node:net';
import { internal, messageOf } from '../errors/engine-error.js';
import type { PublishedPort } from '../ports/network.js';

export interface HeldPort {
  readonly port: PublishedPort;
  release(): void;
}

/** An idle UDP peer is forgotten after this time. */
const UDP_SESSION_MS = 90_000;

/**
 * Binds the port (0: a free one) and forwards to the container. Throws internal with the Engine API's text
 * `Bind for A:P failed: port is already allocated` when somebody has it.
 */
export async function holdPort(wanted: PublishedPort, address: string): Promise<HeldPort> {
  const hostIp = wanted.hostIp === '' ? '0.0.0.0' : wanted.hostIp;
  const target = { host: address, port: wanted.containerPort };
  try {
    if (wanted.protocol === 'tcp') return await holdTcp(wanted, hostIp, target);
    if (wanted.protocol === 'udp') return await holdUdp(wanted, hostIp, target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === 'EADDRINUSE' ? 'port is already allocated' : messageOf(error);
    throw internal(`Bind for ${hostIp}:${wanted.hostPort} failed: ${reason}`, { code: 'PORT_IN_USE', cause: error });
  }
  // The kernel has no user-space SCTP sockets that Node could hold: the rules alone publish it.
  return { port: { ...wanted, hostIp, hostPort: wanted.hostPort || wanted.containerPort }, release: () => undefined };
}

async function holdTcp(wanted: PublishedPort, hostIp: string, target: { host: string; port: number }): Promise<HeldPort> {
  const server: Server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    const upstream = connect({ ...target, allowHalfOpen: true });
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
    upstream.on('connect', () => {
      client.pipe(upstream);
      upstream.pipe(client);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen({ host: hostIp, port: wanted.hostPort, exclusive: true }, resolve));
  server.on('error', () => undefined);
  const bound = server.address();
  const hostPort = typeof bound === 'object' && bound ? bound.port : wanted.hostPort;
  return { port: { ...wanted, hostIp, hostPort }, release: () => void server.close() };
}

async function holdUdp(wanted: PublishedPort, hostIp: string, target: { host: string; port: number }): Promise<HeldPort> {
  const server = createSocket('udp4');
  const sessions = new Map<string, { readonly socket: UdpSocket; timer: NodeJS.Timeout }>();
  server.on('message', (message, peer) => {
    const key = `${peer.address}:${peer.port}`;
    let session = sessions.get(key);
    if (!session) {
      const socket = createSocket('udp4');
      const end = (): void => {
        sessions.delete(key);
        socket.close();
      };
      session = { socket, timer: setTimeout(end, UDP_SESSION_MS).unref() };
      sessions.set(key, session);
      socket.on('message', (answer) => server.send(answer, peer.port, peer.address));
      socket.on('error', () => undefined);
    }
    session.timer.refresh();
    session.socket.send(message, target.port, target.host);
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).bind({ address: hostIp, port: wanted.hostPort, exclusive: true }, resolve));
  server.on('error', () => undefined);
  const release = (): void => {
    for (const { socket, timer } of sessions.values()) {
      clearTimeout(timer);
      socket.close();
    }
    sessions.clear();
    server.close();
  };
  return { port: { ...wanted, hostIp, hostPort: server.address().port }, release };
}
