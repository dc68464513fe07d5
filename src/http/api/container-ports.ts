/** The ports of a container as the Engine API shows them, in list items and in inspect. */
import { type ContainerRecord, isRunning } from '../../actors/container/container.record.js';
import type { PublishedPort } from '../../ports/network.js';
import { memberNames } from '../../text/member-names.js';
import { objectParts } from '../../text/object-parts.js';
import { whole } from '../../text/turns.js';

export interface PortItem {
  IP?: string;
  PrivatePort: number;
  PublicPort?: number;
  Type: string;
}

/** Returns the ports of a list item: published ones with their address, then those merely exposed. */
export function portList(record: ContainerRecord): PortItem[] {
  if (!isRunning(record)) return [];
  const published = record.ports.map((port) => ({
    IP: shownIp(port),
    PrivatePort: port.containerPort,
    ...(port.hostPort === 0 ? {} : { PublicPort: port.hostPort }),
    Type: port.protocol as string,
  }));
  const taken = new Set(published.map((port) => `${port.PrivatePort}/${port.Type}`));
  const exposed = exposedPorts(record)
    .filter((key) => !taken.has(key))
    .map((key) => {
      const [port = '0', type = 'tcp'] = key.split('/');
      return { PrivatePort: Number(port), Type: type };
    });
  return [...published, ...exposed];
}

/**
 * Returns the exposed ports that the host could reach: none without a gateway, on a link of the host, or in the network
 * of another container.
 */
function exposedPorts({ config, networks }: ContainerRecord): readonly string[] {
  const isReachable = Object.values(networks).some(
    ({ endpoint }) =>
      endpoint && endpoint.showsPorts !== false && (endpoint.gateway !== '' || endpoint.ipv6Gateway !== ''),
  );
  return isReachable ? memberNames(config.ExposedPorts ?? {}) : [];
}

function shownIp(port: PublishedPort): string {
  return port.hostIp === '' ? '0.0.0.0' : port.hostIp;
}

interface ShownBinding {
  readonly HostIp: string;
  readonly HostPort: string;
}

/** Renders `NetworkSettings.Ports` of inspect. */
export function portMap(record: ContainerRecord): Record<string, ShownBinding[] | null> {
  if (!isRunning(record)) return {};
  const map = new Map<string, ShownBinding[] | null>();
  for (const key of exposedPorts(record)) map.set(key, null);
  for (const port of record.ports) {
    const key = `${port.containerPort}/${port.protocol}`;
    // One port may be published ten thousand times, so its list is not copied each time.
    const bindings = map.get(key) ?? [];
    bindings.push({ HostIp: shownIp(port), HostPort: port.hostPort === 0 ? '' : String(port.hostPort) });
    map.set(key, bindings);
  }
  return whole(objectParts(map.keys(), (key) => map.get(key) ?? null));
}
