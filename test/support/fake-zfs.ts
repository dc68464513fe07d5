/**
 * The programs of ZFS as far as the driver uses them, on plain directories: for what the driver does around them, where
 * there is no ZFS. Datasets are whole copies, and a mount is a bind mount. The real ones are in test/vm/zfs.test.ts.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ZfsHost } from '../../src/storage/drivers/zfs/host.js';
import { zfsError } from '../../src/storage/drivers/zfs/programs.js';
import { randomName } from '../../src/storage/random-name.js';
import { makeMountReadOnly, mountFileSystem } from '../../src/sys/mount/mount.js';

interface Facts {
  readonly properties: Record<string, string>;
  readonly origin: string;
  isDeferred?: boolean;
}

// linux/mount.h
const MS_BIND = 0x1000;

/** A pool `tank` in a directory, on which all paths are. It outlives the process. */
export class FakeZfs implements ZfsHost {
  readonly pool: Record<string, string> = { health: 'ONLINE', readonly: 'off', size: '1000000000', free: '1000000000' };
  /** All commands, as lines. */
  readonly commands: string[] = [];

  constructor(readonly directory: string) {
    if (!existsSync(this.#at('tank'))) this.#make('tank', { properties: {}, origin: '-' });
  }

  trouble(): string | undefined {
    return undefined;
  }

  fileSystemOf(): { readonly type: string; readonly options: readonly string[]; readonly source: string } {
    return { type: 'zfs', options: [], source: 'tank' };
  }

  async mount(dataset: string, at: string, isForReading: boolean): Promise<void> {
    await mountFileSystem(join(this.#at(dataset), 'tree'), at, 'none', '', MS_BIND);
    if (isForReading) await makeMountReadOnly(at);
  }

  async zpool(...args: readonly string[]): Promise<string> {
    this.commands.push(`zpool ${args.join(' ')}`);
    return Object.entries(this.pool)
      .map((pair) => `${pair.join('\t')}\n`)
      .join('');
  }

  async zfs(...args: readonly string[]): Promise<string> {
    this.commands.push(`zfs ${args.join(' ')}`);
    const [command = '', ...rest] = args;
    const withValue = command === 'destroy' ? /^-$/ : /^-[odts]$/;
    const flags = rest.filter((arg, i) => arg.startsWith('-') || withValue.test(rest[i - 1] ?? ''));
    const [first = '', second = ''] = rest.filter((arg) => !flags.includes(arg));
    const values = (flag: string): string[] => rest.filter((_, i) => rest[i - 1] === flag);
    const fail = (said: string): never => {
      throw zfsError(`zfs ${args.join(' ')}`, said);
    };
    const properties = Object.fromEntries(values('-o').map((entry) => entry.split('=', 2))) as Record<string, string>;
    const need = (name: string): string => (existsSync(this.#at(name)) ? name : fail('dataset does not exist'));
    const isFree = (name: string): string => (existsSync(this.#at(name)) ? fail('dataset already exists') : name);
    if (command === 'create') this.#make(isFree(first), { properties, origin: '-' });
    // Nobody writes to what the driver has made a snapshot of, so it is no copy.
    else if (command === 'snapshot') this.#make(isFree(first), { properties: {}, origin: '-' });
    else if (command === 'clone') await this.#clone(need(first), isFree(second), properties);
    else if (command === 'destroy') this.#destroy(need(first), rest.includes('-d'), fail);
    else if (command === 'set') {
      const { properties: before } = this.#facts(second);
      this.set(need(second), { ...before, ...Object.fromEntries([first.split(/=(.*)/s, 2)]) });
    } else if (command === 'get') return this.#get(first, second === '' ? '' : need(second), values);
    else fail(`unknown command ${command}`);
    return '';
  }

  /** Gives a dataset these properties alone. */
  set(name: string, properties: Record<string, string>): void {
    writeFileSync(join(this.#at(name), 'facts'), JSON.stringify({ ...this.#facts(name), properties }));
  }

  /** Renames a dataset with all below it, as `zfs rename` does. */
  renameTree(from: string, to: string): void {
    const renamed = (name: string): string => (this.#isIn(from, name) ? to + name.slice(from.length) : name);
    for (const name of this.names()) {
      const facts = this.#facts(name);
      writeFileSync(join(this.#at(name), 'facts'), JSON.stringify({ ...facts, origin: renamed(facts.origin) }));
      renameSync(this.#at(name), this.#at(renamed(name)));
    }
  }

  /** All datasets and snapshots. */
  names(): string[] {
    const names = readdirSync(this.directory).filter((name) => !name.startsWith('.'));
    return names.map((name) => name.replaceAll('!', '/')).sort();
  }

  #at(name: string): string {
    return join(this.directory, name.replaceAll('/', '!'));
  }

  #isIn(name: string, other: string): boolean {
    return other === name || (/[/@]/.test(other[name.length] ?? '') && other.startsWith(name));
  }

  #facts(name: string): Facts {
    return JSON.parse(readFileSync(join(this.#at(name), 'facts'), 'utf8')) as Facts;
  }

  #make(name: string, facts: Facts, fill: (at: string) => void = mkdirSync): void {
    const fresh = join(this.directory, `.${randomName()}`);
    mkdirSync(fresh);
    fill(join(fresh, 'tree'));
    writeFileSync(join(fresh, 'facts'), JSON.stringify(facts));
    renameSync(fresh, this.#at(name));
  }

  async #clone(origin: string, to: string, properties: Record<string, string>): Promise<void> {
    const copied = join(this.directory, `.${randomName()}`);
    const [dataset = ''] = origin.split('@', 1);
    await promisify(execFile)('cp', ['-a', join(this.#at(dataset), 'tree'), copied]);
    this.#make(to, { properties, origin }, (at) => renameSync(copied, at));
  }

  #destroy(name: string, isDeferred: boolean, fail: (said: string) => never): void {
    const below = this.names().filter((other) => other.startsWith(`${name}/`) || other.startsWith(`${name}@`));
    const clones = this.names().filter((other) => this.#facts(other).origin === name);
    if (clones.length > 0 && isDeferred) {
      writeFileSync(join(this.#at(name), 'facts'), JSON.stringify({ ...this.#facts(name), isDeferred }));
      return;
    }
    if (below.length > 0 || clones.length > 0) fail('filesystem has children');
    const { origin } = this.#facts(name);
    rmSync(this.#at(name), { recursive: true });
    const isLast = existsSync(this.#at(origin)) && !this.names().some((other) => this.#facts(other).origin === origin);
    if (isLast && this.#facts(origin).isDeferred) rmSync(this.#at(origin), { recursive: true });
  }

  #get(wanted: string, name: string, values: (flag: string) => string[]): string {
    const depth = Number(values('-d')[0] ?? 0);
    const depthOf = (other: string): number => other.slice(name.length).split(/[/@]/).length - 1;
    const all = this.names().filter((other) => name === '' || (this.#isIn(name, other) && depthOf(other) <= depth));
    const isLocal = values('-s').length > 0;
    const columns = values('-o')[0]?.split(',') ?? [];
    const lines = all.flatMap((at) =>
      wanted.split(',').flatMap((property) => {
        const { properties, origin } = this.#facts(at);
        const local = properties[property];
        const fixed: Record<string, string> = { type: 'filesystem', origin, available: '900000000', used: '100000000' };
        const row: Record<string, string> = {
          name: at,
          property,
          value: local ?? fixed[property] ?? '-',
          source: local === undefined ? '-' : 'local',
        };
        return isLocal && local === undefined ? [] : [columns.map((column) => row[column]).join('\t')];
      }),
    );
    return lines.map((line) => `${line}\n`).join('');
  }
}
