/** Chain IDs: layers are named by the stack that they complete (OCI image specification, "Layer ChainID"). */
import { createHash } from 'node:crypto';
import type { Digest } from './storage.js';

/** Returns the chain ID of a layer on top of a stack. */
export function chainId(parent: Digest | undefined, diffId: Digest): Digest {
  return parent === undefined ? diffId : `sha256:${createHash('sha256').update(`${parent} ${diffId}`).digest('hex')}`;
}

/** Returns the chain ID of every layer of an image, lowest first. */
export function chainOf(diffIds: readonly Digest[]): Digest[] {
  const chain: Digest[] = [];
  for (const diffId of diffIds) chain.push(chainId(chain.at(-1), diffId));
  return chain;
}
