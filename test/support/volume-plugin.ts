/** A volume driver that keeps volumes in directories and really mounts them while somebody uses them. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PluginServer } from './plugin-server.js';

export class VolumePluginServer extends PluginServer {
  readonly #dir: string;
  /** By name: the uses that have it mounted. */
  readonly volumes: ReadonlyMap<string, ReadonlySet<string>>;

  constructor(name: string, scope: 'local' | 'global' = 'local') {
    const dir = mkdtempSync(join(tmpdir(), `${name}-`));
    const volumes = new Map<string, Set<string>>();
    const named = ({ Name }: Readonly<Record<string, unknown>>): { volume: string; uses: Set<string> } => {
      const uses = volumes.get(String(Name));
      if (!uses) throw new Error(`no volume ${String(Name)}`);
      return { volume: String(Name), uses };
    };
    const files = (volume: string): string => join(dir, 'files', volume);
    const point = (volume: string): string => join(dir, 'mounted', volume);
    const shown = (volume: string): unknown => ({
      Name: volume,
      Mountpoint: (volumes.get(volume)?.size ?? 0) > 0 ? point(volume) : '',
      Status: { colour: 'blue' },
    });
    super(name, ['VolumeDriver'], {
      'VolumeDriver.Capabilities': () => ({ Capabilities: { Scope: scope } }),
      'VolumeDriver.Create': ({ Name, Opts }) => {
        if ((Opts as Record<string, string> | null)?.['bad'] !== undefined) throw new Error('bad option');
        for (const path of [files(String(Name)), point(String(Name))]) mkdirSync(path, { recursive: true });
        volumes.set(String(Name), new Set());
      },
      'VolumeDriver.Remove': (argument) => {
        const { volume, uses } = named(argument);
        if (uses.size > 0) throw new Error('still mounted');
        rmSync(files(volume), { recursive: true });
        volumes.delete(volume);
      },
      'VolumeDriver.Get': (argument) => ({ Volume: shown(named(argument).volume) }),
      'VolumeDriver.List': () => ({ Volumes: [...volumes.keys()].map(shown) }),
      'VolumeDriver.Path': (argument) => ({ Mountpoint: point(named(argument).volume) }),
      'VolumeDriver.Mount': (argument) => {
        const { volume, uses } = named(argument);
        if (uses.has(String(argument['ID']))) throw new Error('mounted twice for one use');
        if (uses.size === 0) execFileSync('mount', ['--bind', files(volume), point(volume)]);
        uses.add(String(argument['ID']));
        return { Mountpoint: point(volume) };
      },
      'VolumeDriver.Unmount': (argument) => {
        const { volume, uses } = named(argument);
        if (!uses.delete(String(argument['ID']))) throw new Error('not mounted for this use');
        if (uses.size === 0) execFileSync('umount', [point(volume)]);
      },
    });
    this.#dir = dir;
    this.volumes = volumes;
  }

  /** How many uses of a volume there are. */
  uses(volume: string): number {
    return this.volumes.get(volume)?.size ?? 0;
  }

  /** Ends the plugin and takes its files away. @throws when something is still mounted. */
  async discard(): Promise<void> {
    await this.stop();
    rmSync(this.#dir, { recursive: true });
  }
}
