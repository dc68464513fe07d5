/** The ports of EXPOSE: `80`, `80-90/udp`, and with an address and a port of the host, which are ignored. */
import { isIP } from 'node:net';
import { type Parts, whole } from '../../text/turns.js';
import { DockerfileError } from './dockerfile-error.js';

/** Hears of ports as they are written, also when there is an error behind them. */
export interface PortObserver {
  /** The protocol is not in lower case. */
  wronglyCased(port: string): void;
  /** An address or a port of the host is named. */
  mapped(port: string): void;
}

export interface ExposedRange extends PortRange {
  readonly protocol: string;
}

/**
 * Returns ports such as `80/tcp`, in the order in which they are written; a port that is written twice comes twice.
 * @param written after the variables have been replaced. @throws DockerfileError without lines.
 */
export function exposedPorts(written: readonly string[]): string[] {
  return whole(exposedPortParts(written));
}

/** The same in parts. */
export function* exposedPortParts(written: readonly string[]): Parts<string[]> {
  const ports: string[] = [];
  for (const { start, end, protocol } of exposedRanges(written)) {
    yield;
    for (let port = start; port <= end; port++) {
      ports.push(`${port}/${protocol}`);
      if (ports.length % FEW === 0) yield;
    }
  }
  return ports;
}

/** So many ports are made together. */
const FEW = 1000;

/** All ports of all protocols. Each EXPOSE has its ports in the history, so that their sum has to be limited. */
const MAX_PORTS = 3 * 65_536;

/** Limits what the EXPOSE of one build name together. */
export class PortBudget {
  #left = MAX_PORTS;

  /** @throws DockerfileError without lines. */
  spend(written: readonly string[]): void {
    for (const { start, end } of exposedRanges(written)) this.#left -= end - start + 1;
    if (this.#left < 0) throw new DockerfileError('EXPOSE has too many ports');
  }
}

/**
 * Returns the ports as ranges, whose protocol is in lower case.
 * @param written after the variables have been replaced. @throws DockerfileError without lines.
 */
export function exposedRanges(written: readonly string[], observer?: PortObserver): ExposedRange[] {
  return written.map((text) => {
    const parts = text.split(':');
    const last = parts.pop() ?? '';
    const hostPort = parts.pop() ?? '';
    const ip = parts.join(':');
    const [port, protocol] = protocolOf(last, text);
    if (protocol !== protocol.toLowerCase()) observer?.wronglyCased(text);
    if (ip !== '' || hostPort !== '') observer?.mapped(text);
    checkAddress(ip);
    const range = rangeOf(port);
    if (range === undefined) throw new DockerfileError(`invalid containerPort: ${port}`);
    if (hostPort !== '') checkHostPort(hostPort, port, range);
    return { ...range, protocol: protocol.toLowerCase() };
  });
}

interface PortRange {
  readonly start: number;
  readonly end: number;
}

function protocolOf(text: string, whole: string): readonly [port: string, protocol: string] {
  const stroke = text.indexOf('/');
  const port = stroke < 0 ? text : text.slice(0, stroke);
  const protocol = stroke < 0 ? '' : text.slice(stroke + 1);
  const invalid = (what: string): Error => new DockerfileError(`invalid port: ${JSON.stringify(whole)}: ${what}`);
  if (port === '') throw invalid('no port specified');
  if (protocol === '') return [port, 'tcp'];
  if (!['tcp', 'udp', 'sctp'].includes(protocol.toLowerCase())) throw invalid(`invalid proto: ${protocol}`);
  return [port, protocol];
}

function checkAddress(ip: string): void {
  const bare = ip.startsWith('[') && ip.endsWith(']') ? ip.slice(1, -1) : ip;
  if (bare !== '' && isIP(bare) === 0) throw new DockerfileError(`invalid IP address: ${ip}`);
}

function checkHostPort(hostPort: string, port: string, { start, end }: PortRange): void {
  const host = rangeOf(hostPort);
  if (host === undefined) throw new DockerfileError(`invalid hostPort: ${hostPort}`);
  if (end - start !== host.end - host.start && end !== start)
    throw new DockerfileError(`invalid ranges specified for container and host Ports: ${port} and ${hostPort}`);
}

function rangeOf(text: string): PortRange | undefined {
  const dash = text.indexOf('-');
  const start = portOf(dash < 0 ? text : text.slice(0, dash));
  const end = dash < 0 ? start : portOf(text.slice(dash + 1));
  return start === undefined || end === undefined || end < start ? undefined : { start, end };
}

function portOf(text: string): number | undefined {
  const port = /^\+?\d{1,40}$/.test(text) ? Number(text) : -1;
  return port >= 0 && port <= 65_535 ? port : undefined;
}
