/**
 * Reads how a bridge network is entered and left, by family: options `bridge.gateway_mode_ipv4` and
 * `bridge.gateway_mode_ipv6`.
 */
import { invalid } from '../errors/engine-error.js';
import type { NetworkSummary } from '../ports/network.js';
import { option } from './network-options.js';
import type { Family } from './subnet.js';

/**
 * `nat`: published ports are translated, and so are the source addresses of packets that leave. `nat-unprotected`:
 * besides, every port is open to anybody with a route. `routed`: nothing is translated, and only published ports are
 * open. `isolated`, only for internal networks: the host has no address on the bridge.
 */
export type GatewayMode = 'nat' | 'nat-unprotected' | 'routed' | 'isolated';

const MODES: ReadonlySet<string> = new Set<GatewayMode>(['nat', 'nat-unprotected', 'routed', 'isolated']);

/**
 * Returns the mode of a network. @throws EngineError invalid for a mode that does not exist or that the network cannot
 * have.
 */
export function gatewayMode(record: Pick<NetworkSummary, 'options' | 'internal'>, family: Family): GatewayMode {
  const name = `bridge.gateway_mode_ipv${family}`;
  const mode = option(record, name) || 'nat';
  if (!isMode(mode))
    throw invalid(`failed to parse com.docker.network.${name} value: ${mode} (unknown gateway mode ${mode})`);
  if (mode === 'isolated' && !record.internal)
    throw invalid("gateway mode 'isolated' can only be used for an internal network");
  return mode;
}

function isMode(text: string): text is GatewayMode {
  return MODES.has(text);
}
