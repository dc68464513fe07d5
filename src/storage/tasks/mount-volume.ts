/** Worker task: mounts what a volume stands for. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { type LocalMount, mountLocal } from '../local-mount.js';

/** The kernel's network file systems want their server as an address. */
const NETWORK_TYPES = new Set(['nfs', 'cifs']);

export async function mountVolume(mount: LocalMount): Promise<void> {
  mountLocal({ ...mount, options: NETWORK_TYPES.has(mount.type) ? await withAddress(mount.options) : mount.options });
}

async function withAddress(options: string): Promise<string> {
  const words = await Promise.all(
    options.split(',').map(async (word) => {
      const host = word.startsWith('addr=') ? word.slice('addr='.length) : '';
      return host === '' || isIP(host) > 0 ? word : `addr=${(await lookup(host)).address}`;
    }),
  );
  return words.join(',');
}
