/**
 * Holds published ports on the host. A real socket holds each port before success is reported, so the kernel finds a
 * clash. The holder also serves what rules cannot: it passes connections to loopback addresses on to the container.
 */
import { isIPv4 } from 'node:net';
import { internal, isEngineError, messageOf } from '../errors/engine-error.js';
import type { KeptSockets } from '../ports/kept-sockets.js';
import type { PortRequest, PublishedPort } from '../ports/network.js';
import { closeFd } from '../sys/files/fd.js';
import { bindPort, dropAllPackets, type PortSocket } from '../sys/net/port-socket.js';
import { packConnections, unpackConnections } from './moved-connections.js';
import { turn } from '../text/turns.js';
import type { OuterPort, OuterPorts } from './outer-ports.js';
import type { MovedConnection } from './proxied-connection.js';
import { TriedNumbers } from './tried-numbers.js';
import type { UnderWay } from './under-way.js';
import { proxyTcp, proxyUdp, type Proxy } from './userland-proxy.js';

export interface HeldPort {
  readonly port: PublishedPort;
  /**
   * The container's address that the port leads to. Its family may differ from the host's; then only the proxy can
   * serve.
   */
  readonly containerIp: string;
  /** The port of the machine, where that is another one than this daemon's. */
  readonly outer?: OuterPort | undefined;
  /** Closes the socket of this process. The next one may go on with it, and with the connections under way. */
  release(): void;
  /**
   * Where no next process can go on with the port, takes no further connections; resolves when those under way are
   * over, and keeps count of them.
   */
  rest(underWay: UnderWay): Promise<void>;
  /** Gives the port back: nobody holds it any more. Connections under way go on in this process. */
  drop(): void;
}

/** How ports are held. */
export interface HoldOptions {
  readonly userlandProxy: boolean;
  readonly keptSockets: KeptSockets;
  /** Undefined for a daemon whose network namespace is the machine's. */
  readonly outerPorts: OuterPorts | undefined;
}

/** Addresses of the container; '' if it has none. */
export interface PortTarget {
  readonly ipv4: string;
  readonly ipv6: string;
}

/** The rules alone lead to the container, or its own address does. */
export const NO_PROXY: Proxy = { close: () => undefined, rest: () => Promise.resolve(), leave: () => [] };

/** This process has no part in the port. */
export const HELD_ELSEWHERE = { release: NO_PROXY.close, rest: NO_PROXY.rest, drop: NO_PROXY.close };

/** Both families must get one number. The kernel may choose so often one that is taken in the other family. */
const PAIR_ATTEMPTS = 16;

/**
 * Binds the wanted port: a certain one, the first free one of a range, or (0) any; without an address, in both
 * families. A container may want thousands, and each may try a range that is taken, so this shares the thread. Throws
 * internal with the Engine API's text `Bind for A:P failed: port is already allocated`, or `failed to bind host port
 * for …` if the port is not simply taken; nothing is held then.
 * @param tried has the numbers that other ports of the container have tried.
 */
export async function holdPort(
  wanted: PortRequest,
  target: PortTarget,
  options: HoldOptions,
  tried = new TriedNumbers(),
): Promise<HeldPort[]> {
  const addresses = wanted.hostIp === '' ? anyAddress(target, options.userlandProxy) : [wanted.hostIp];
  const choices = wanted.hostPort === 0 ? Array.from({ length: PAIR_ATTEMPTS }, () => 0) : tried.choices(wanted);
  let failure: unknown;
  for (const hostPort of choices) {
    await turn();
    try {
      return await holdOnAll(wanted, addresses, hostPort, target, options);
    } catch (error) {
      failure = error;
      if (!isEngineError(error) || error.code !== 'PORT_IN_USE') break;
    }
  }
  throw failure;
}

/** Holds one number on every address. */
async function holdOnAll(
  wanted: PortRequest,
  addresses: readonly string[],
  hostPort: number,
  target: PortTarget,
  options: HoldOptions,
): Promise<HeldPort[]> {
  const { outerPorts } = options;
  const held: HeldPort[] = [];
  try {
    for (const hostIp of addresses) {
      const number = held[0]?.port.hostPort ?? hostPort;
      const isElsewhere = outerPorts !== undefined && !isLocal(hostIp);
      const inner = isElsewhere
        ? numberOnly(wanted, hostIp, number, target)
        : holdOne(wanted, hostIp, number, target, options);
      held.push(inner);
      if (outerPorts) held[held.length - 1] = { ...inner, outer: await outerPorts.open(inner.port, inner.containerIp) };
    }
    return held;
  } catch (error) {
    // The machine may lack a family that the namespace has.
    const last = held.at(-1);
    if (wanted.hostIp === '' && held.length > 1 && last && isEngineError(error) && error.code === 'NO_FAMILY') {
      await letGo([last]);
      return held.slice(0, -1);
    }
    await letGo(held);
    throw error;
  }
}

/** Gives ports back, those of the machine too. */
export async function letGo(held: readonly HeldPort[]): Promise<void> {
  for (const port of held) {
    await turn();
    port.drop();
  }
  await Promise.all(held.map(async ({ outer }) => outer?.close()));
}

/** Tells whether an address is that of every namespace. */
function isLocal(ip: string): boolean {
  return ip === '0.0.0.0' || ip === '::' || ip === '::1' || ip.startsWith('127.');
}

/** Chooses the number of a port whose address this namespace lacks, so that nothing holds it here. */
function numberOnly(
  { protocol, containerPort }: PortRequest,
  hostIp: string,
  hostPort: number,
  target: PortTarget,
): HeldPort {
  const port = { protocol, containerPort, hostIp, hostPort: hostPort || freeNumber(protocol) };
  return { port, containerIp: targetFor(hostIp, target), ...HELD_ELSEWHERE };
}

function freeNumber(protocol: PortRequest['protocol']): number {
  const socket = bindPort(protocol, '127.0.0.1', 0);
  closeFd(socket.fd);
  return socket.port;
}

function targetFor(hostIp: string, { ipv4, ipv6 }: PortTarget): string {
  return (isIPv4(hostIp) ? ipv4 : ipv6) || ipv4 || ipv6;
}

/** Clients of the Engine API know these texts. */
const REASONS: ReadonlyMap<string, string> = new Map([
  ['EADDRNOTAVAIL', 'cannot assign requested address'],
  ['EACCES', 'permission denied'],
]);

function bracketed(ip: string): string {
  return isIPv4(ip) ? ip : `[${ip}]`;
}

function holdOne(
  { protocol, containerPort }: PortRequest,
  hostIp: string,
  hostPort: number,
  target: PortTarget,
  { userlandProxy, keptSockets }: HoldOptions,
): HeldPort {
  const containerIp = targetFor(hostIp, target);
  const held = (port: number, proxy: Proxy): HeldPort => {
    const name = keptName(protocol, hostIp, port);
    return {
      port: { protocol, containerPort, hostIp, hostPort: port },
      containerIp,
      release: () => passOn(proxy.leave(), name, keptSockets),
      rest: async (underWay) => (keptSockets.outlives(name) ? undefined : proxy.rest(underWay)),
      drop: () => {
        keptSockets.drop(name);
        proxy.close();
      },
    };
  };
  let socket: PortSocket;
  try {
    socket = openSocket(protocol, hostIp, hostPort, keptSockets);
  } catch (error) {
    const code = isEngineError(error) ? error.code : undefined;
    // A kernel without SCTP sockets still translates SCTP, so the rules alone publish the port.
    if (protocol === 'sctp' && (code === 'EPROTONOSUPPORT' || code === 'ESOCKTNOSUPPORT'))
      return held(hostPort || containerPort, NO_PROXY);
    const place = `${bracketed(hostIp)}:${hostPort}`;
    if (code === 'EADDRINUSE')
      throw internal(`Bind for ${place} failed: port is already allocated`, { code: 'PORT_IN_USE', cause: error });
    const target = `${bracketed(containerIp)}:${containerPort}/${protocol}`;
    const reason = REASONS.get(code ?? '') ?? messageOf(error);
    throw internal(`failed to bind host port for ${place}:${target}: ${reason}`, {
      code: 'PORT_UNAVAILABLE',
      cause: error,
    });
  }
  if (userlandProxy && protocol !== 'sctp') {
    const proxy = protocol === 'tcp' ? proxyTcp : proxyUdp;
    const earlier = takePassed(keptName(protocol, hostIp, socket.port), keptSockets);
    return held(socket.port, proxy(socket.fd, hostIp, { host: containerIp, port: containerPort }, earlier));
  }
  dropAllPackets(socket.fd);
  const close = (): void => closeFd(socket.fd);
  const leave = (): [] => {
    close();
    return [];
  };
  return held(socket.port, { ...NO_PROXY, close, leave });
}

function keptName(protocol: string, hostIp: string, port: number): string {
  return `port ${protocol} ${bracketed(hostIp)}:${port}`;
}

/** Gives connections to the next process. They are cut where there is none. */
function passOn(connections: readonly MovedConnection[], name: string, keptSockets: KeptSockets): void {
  if (connections.length === 0) return;
  const queue = packConnections(connections);
  keptSockets.pass(passedName(name), queue);
  closeFd(queue);
}

/** Returns the connections that the earlier process has passed on. */
function takePassed(name: string, keptSockets: KeptSockets): MovedConnection[] {
  const queue = keptSockets.take(passedName(name));
  if (queue === undefined) return [];
  keptSockets.drop(passedName(name));
  return unpackConnections(queue);
}

function passedName(name: string): string {
  return `connections of ${name}`;
}

/** Goes on with the socket of an earlier process, or binds one. */
function openSocket(
  protocol: PortRequest['protocol'],
  hostIp: string,
  hostPort: number,
  keptSockets: KeptSockets,
): PortSocket {
  const earlier = keptSockets.take(keptName(protocol, hostIp, hostPort));
  const socket = earlier === undefined ? bindPort(protocol, hostIp, hostPort) : { fd: earlier, port: hostPort };
  keptSockets.keep(keptName(protocol, hostIp, socket.port), socket.fd);
  return socket;
}

/**
 * Returns the address that stands for all. IPv6 is left out if nothing can serve it: the container has no such address,
 * and there is no proxy.
 */
function anyAddress(target: PortTarget, userlandProxy: boolean): string[] {
  return [
    ...(target.ipv4 === '' ? [] : ['0.0.0.0']),
    ...(hostHasIpv6() && (target.ipv6 !== '' || userlandProxy) ? ['::'] : []),
  ];
}

function hostHasIpv6(): boolean {
  try {
    closeFd(bindPort('udp', '::1', 0).fd);
    return true;
  } catch {
    // IPv6 is switched off, in the kernel or for loopback, so nobody needs to be served.
    return false;
  }
}
