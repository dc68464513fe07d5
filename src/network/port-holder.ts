/**
 * Published ports on the host's side. A real socket holds each port before success is reported, so a clash is found by
 * the kernel. The holder also serves what rules cannot: connections to loopback addresses are passed on to the
 * container.
 */
import { isIPv4 } from 'node:net';
import { internal, isEngineError, messageOf } from '../errors/engine-error.js';
import type { PortRequest, PublishedPort } from '../ports/network.js';
import { closeFd } from '../sys/files/fd.js';
import { bindPort, dropAllPackets, type PortSocket } from '../sys/net/port-socket.js';
import { proxyTcp, proxyUdp } from './userland-proxy.js';

export interface HeldPort {
  readonly port: PublishedPort;
  /** The container's address that it leads to; of another family than the host's where only the proxy can serve. */
  readonly containerIp: string;
  release(): void;
}

/** Addresses of the container; '' where it has none. */
export interface PortTarget {
  readonly ipv4: string;
  readonly ipv6: string;
}

/** Both families shall have one number: how often the kernel may choose one that is taken in the other. */
const PAIR_ATTEMPTS = 16;

/**
 * Binds what was asked for: a port, the first free one of a range, or (0) any; on both families when no address is
 * said. Throws internal with the Engine API's text `Bind for A:P failed: port is already allocated`, or `failed to bind
 * host port for …` when it is not another one that has the port; nothing is held then.
 */
export function holdPort(wanted: PortRequest, target: PortTarget, userlandProxy: boolean): HeldPort[] {
  const addresses = wanted.hostIp === '' ? anyAddress(target, userlandProxy) : [wanted.hostIp];
  const last = wanted.hostPortEnd ?? wanted.hostPort;
  const choices =
    wanted.hostPort === 0
      ? Array.from({ length: PAIR_ATTEMPTS }, () => 0)
      : Array.from({ length: last - wanted.hostPort + 1 }, (_, index) => wanted.hostPort + index);
  let failure: unknown;
  for (const hostPort of choices) {
    try {
      return holdOnAll(wanted, addresses, hostPort, target, userlandProxy);
    } catch (error) {
      failure = error;
      if (!isEngineError(error) || error.code !== 'PORT_IN_USE') break;
    }
  }
  throw failure;
}

/** One number on every address. */
function holdOnAll(
  wanted: PortRequest,
  addresses: readonly string[],
  hostPort: number,
  target: PortTarget,
  userlandProxy: boolean,
): HeldPort[] {
  const held: HeldPort[] = [];
  try {
    for (const hostIp of addresses)
      held.push(holdOne(wanted, hostIp, held[0]?.port.hostPort ?? hostPort, target, userlandProxy));
    return held;
  } catch (error) {
    for (const port of held) port.release();
    throw error;
  }
}

/** Texts that clients of the Engine API know. */
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
  userlandProxy: boolean,
): HeldPort {
  const containerIp = (isIPv4(hostIp) ? target.ipv4 : target.ipv6) || target.ipv4 || target.ipv6;
  const held = (port: number, release: () => void): HeldPort => ({
    port: { protocol, containerPort, hostIp, hostPort: port },
    containerIp,
    release,
  });
  let socket: PortSocket;
  try {
    socket = bindPort(protocol, hostIp, hostPort);
  } catch (error) {
    const code = isEngineError(error) ? error.code : undefined;
    // A kernel without SCTP sockets still translates it: the rules alone publish it.
    if (protocol === 'sctp' && (code === 'EPROTONOSUPPORT' || code === 'ESOCKTNOSUPPORT'))
      return held(hostPort || containerPort, () => undefined);
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
    return held(socket.port, proxy(socket.fd, hostIp, { host: containerIp, port: containerPort }));
  }
  dropAllPackets(socket.fd);
  return held(socket.port, () => closeFd(socket.fd));
}

/** IPv6 is left out where nothing could serve it: the container has no such address, and there is no proxy. */
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
    // Switched off in the kernel or for loopback: there is nobody to serve.
    return false;
  }
}
