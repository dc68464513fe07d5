/** Requests for networks, as the network driver gets them. */
import { randomInt } from 'node:crypto';
import type { NetworkRequest, NetworkSubnet } from '../../src/ports/network.js';

/** All subnets of 24 bits in 10.0.0.0/8. */
const SUBNETS = 2 ** 16;
let next = randomInt(SUBNETS);

/**
 * A subnet that nothing else on this machine has most likely, and that this process has not got before: two draws at
 * random would meet in one of some hundred runs of a file with many networks.
 */
export function someSubnet(): string {
  next = (next + 1) % SUBNETS;
  return `10.${next >> 8}.${next & 255}.0/24`;
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
