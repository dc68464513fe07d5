/** Groups of the host. */
import { readFileSync } from 'node:fs';
import { notFound } from '../../errors/engine-error.js';
import { parseGroup } from './accounts.js';
import { askNameService, nameServiceEntry } from './name-service.js';

/**
 * Finds the id of a group by name or number. Synchronous, for the start.
 * @throws EngineError not-found.
 */
export function groupId(name: string): number {
  return idOnHost(name) ?? idIn(nameServiceEntry('group', name), name) ?? missing(name);
}

/** Does the same for a running daemon: whoever keeps groups elsewhere is asked in the background. */
export async function findGroupId(name: string): Promise<number> {
  return idOnHost(name) ?? idIn(await askNameService('group', name), name) ?? missing(name);
}

function idOnHost(name: string): number | undefined {
  return /^\d+$/.test(name) ? Number(name) : idIn(readFileSync('/etc/group', 'utf8'), name);
}

function idIn(text: string, name: string): number | undefined {
  return parseGroup(text).find((entry) => entry.name === name)?.gid;
}

function missing(name: string): never {
  throw notFound(`group ${name} not found`);
}
