/** Decides over which of its endpoints a container leaves. Pure. */
import type { Endpoint } from '../ports/network.js';
import type { AttachableNetwork } from './attachable-network.js';
import type { Family } from './subnet.js';

export interface Candidate {
  /** Name of the network. */
  readonly name: string;
  readonly gatewayPriority: number;
  /** True if it has addresses of both families. */
  readonly isDual: boolean;
}

/** The default route of one family. */
export interface WayOut {
  readonly endpoint: Endpoint;
  /** An address; an unspecified one means the link itself. */
  readonly gateway: string;
}

interface Attached {
  readonly endpoint: Endpoint;
  readonly network: Pick<AttachableNetwork, 'onLink'>;
}

/** Orders candidates: the first one is taken. */
export function compareWaysOut(a: Candidate, b: Candidate): number {
  return b.gatewayPriority - a.gatewayPriority || Number(b.isDual) - Number(a.isDual) || (a.name < b.name ? -1 : 1);
}

/** Orders the endpoints of a container as `compareWaysOut` does. */
export function compareEndpoints(a: Endpoint, b: Endpoint): number {
  return compareWaysOut(candidateOf(a), candidateOf(b));
}

/** Returns the way out of each family that has one, given all attachments of a container. */
export function waysOut(attachments: readonly Attached[]): WayOut[] {
  const ranked = attachments.toSorted(({ endpoint: a }, { endpoint: b }) => compareEndpoints(a, b));
  return ([4, 6] as const).flatMap((family) => {
    for (const { endpoint, network } of ranked) {
      const gateway = gatewayOf(endpoint, network.onLink, family);
      if (gateway !== '') return [{ endpoint, gateway }];
    }
    return [];
  });
}

function candidateOf({ networkName, gatewayPriority, ipv4, ipv6 }: Endpoint): Candidate {
  return { name: networkName, gatewayPriority, isDual: ipv4 !== '' && ipv6 !== '' };
}

/** Returns the gateway of an endpoint; '' if it leads nowhere. */
function gatewayOf({ gateway, ipv4, ipv6, ipv6Gateway }: Endpoint, onLink: boolean, family: Family): string {
  const [own, next, unspecified] = family === 4 ? [ipv4, gateway, '0.0.0.0'] : [ipv6, ipv6Gateway, '::'];
  return next === '' && own !== '' && onLink ? unspecified : next;
}
