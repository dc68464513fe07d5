/** A network namespace that is linked to this one as another machine would be. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { createNetns, removeNetnsNow } from '../../src/sys/process/netns.js';
import { runInside, startInside } from './host-networks.js';

export interface Outside {
  /** The path of the namespace. */
  readonly path: string;
  /** The link on this side. */
  readonly link: string;
  remove(): void;
}

export interface OutsideOptions {
  /** With prefix lengths. */
  readonly here: readonly string[];
  readonly there: readonly string[];
}

/** Links a new namespace to this one; its routes for everything else lead here when this side has addresses. */
export function openOutside(directory: string, { here, there }: OutsideOptions): Outside {
  const name = `eo${randomBytes(3).toString('hex')}`;
  const path = join(directory, name);
  createNetns(path, () => undefined);
  const ip = (...args: readonly string[]): void => void execFileSync('ip', args);
  const link = `${name}h`;
  const end = `${name}o`;
  try {
    ip('link', 'add', link, 'type', 'veth', 'peer', 'name', end);
    const keeper = startInside(path, 'sleep', '60');
    try {
      ip('link', 'set', end, 'netns', String(keeper.pid));
    } finally {
      keeper.kill('SIGKILL');
    }
    for (const address of here) ip('addr', 'add', address, 'dev', link, ...(address.includes(':') ? ['nodad'] : []));
    ip('link', 'set', link, 'up');
    runInside(path, 'ip', 'link', 'set', 'lo', 'up');
    for (const address of there)
      runInside(path, 'ip', 'addr', 'add', address, 'dev', end, ...(address.includes(':') ? ['nodad'] : []));
    runInside(path, 'ip', 'link', 'set', end, 'up');
    for (const address of here)
      runInside(
        path,
        'ip',
        ...(address.includes(':') ? ['-6'] : []),
        'route',
        'add',
        'default',
        'via',
        address.split('/')[0] ?? '',
      );
  } catch (error) {
    removeNetnsNow(path);
    throw error;
  }
  return {
    path,
    link,
    remove: () => {
      execFileSync('ip', ['link', 'del', link]);
      removeNetnsNow(path);
    },
  };
}
