/** Requests for networks, as the network driver gets them. */
import { randomBytes } from 'node:crypto';
import type { NetworkRequest, NetworkSubnet } from '../../src/ports/network.js';

/** A subnet that most likely nothing else on this machine has. */
export function someSubnet(): string {
  const [a = 0, b = 0] = randomBytes(2);
  return `10.${a}.${b}.0/24`;
}

export const subnet = (changes: Partial<NetworkSubnet>): NetworkSubnet => ({
  subnet: '',
  gateway: '',
  ipRange: '',
  auxiliaryAddresses: {},
  ...changes,
});

export function request(name: string, changes: Partial<NetworkRequest> = {}): NetworkRequest {
  return {
    name,
    driver: 'bridge',
    internal: false,
    attachable: false,
    enableIpv4: true,
    enableIpv6: false,
    ipam: { driver: 'default', options: {} },
    subnets: [subnet({ subnet: someSubnet() })],
    options: {},
    labels: {},
    configOnly: false,
    configFrom: '',
    ...changes,
  };
}
