/** Where a shim listens, as it has written into the bundle of its task. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

const SOCKET = 'unix://';

export interface ShimAddress {
  /** Path of its socket. */
  readonly path: string;
  /** Name of its service in ttrpc: since containerd 2 with the version that the shim speaks. */
  readonly service: string;
}

/** Returns the address; undefined when there is none, or the shim speaks something other than ttrpc. */
export async function shimAddress(bundle: string): Promise<ShimAddress | undefined> {
  const parameters = await readFile(join(bundle, 'bootstrap.json'), 'utf8').catch(() => undefined);
  const {
    version = 2,
    address,
    protocol = 'ttrpc',
  } = (
    parameters === undefined
      ? { address: await readFile(join(bundle, 'address'), 'utf8').catch(() => '') }
      : JSON.parse(parameters)
  ) as { version?: number; address?: string; protocol?: string };
  if (address === undefined || !address.startsWith(SOCKET) || protocol !== 'ttrpc') return undefined;
  return { path: address.slice(SOCKET.length).trim(), service: `containerd.task.v${version}.Task` };
}
