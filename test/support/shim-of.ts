/** The shim of a container: that of its ID, or since containerd 2.1 one that serves one container after another. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { processesOf, type ProcessInfo } from './leftovers.js';

/** Returns the shim of a container, whose daemon has its files below `dir`; none if it has ended. */
export function shimsOf(dir: string, id: string): ProcessInfo[] {
  const supervisor = join(dir, 'exec/supervisor');
  const address = addressIn(join(supervisor, 'state/io.containerd.runtime.v2.task'), id);
  const pooled = address === undefined ? undefined : pooledAt(join(supervisor, 'shims'), address);
  const name = pooled ?? id;
  return processesOf(dir).filter(({ command }) => /^\S*containerd-shim-/.test(command) && command.includes(name));
}

function pooledAt(dir: string, address: string): string | undefined {
  const names = subdirectories(dir).flatMap((namespace) => subdirectories(join(dir, namespace)));
  return names.find((name) => addressIn(dir, name) === address);
}

/** Returns the address that is noted in one of the directories of this name, of which each namespace may have one. */
function addressIn(dir: string, name: string): string | undefined {
  for (const namespace of subdirectories(dir)) {
    const file = join(dir, namespace, name, 'bootstrap.json');
    if (existsSync(file)) return (JSON.parse(readFileSync(file, 'utf8')) as { address: string }).address;
  }
  return undefined;
}

function subdirectories(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : [];
}
