/** placeholder until the volume driver lands */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
export class LocalVolumes {
  constructor(private readonly options: { root: string; workers: unknown }) {}
  async load(): Promise<void> { await mkdir(this.options.root, { recursive: true }); }
  async ensure({ name }: { readonly name: string }): Promise<{ mountpoint: string; created: boolean }> {
    const mountpoint = join(this.options.root, name, '_data');
    const created = (await mkdir(mountpoint, { recursive: true })) !== undefined;
    return { mountpoint, created };
  }
  async populate(_mountpoint: string, _from: string): Promise<void> { return Promise.resolve(); }
  isAnonymous(name: string): boolean { return /^[0-9a-f]{64}$/.test(name); }
  async remove(name: string): Promise<void> { await rm(join(this.options.root, name), { recursive: true, force: true }); }
}
