/** Groups of the host. */
import { readFileSync } from 'node:fs';
import { notFound } from '../../errors/engine-error.js';
import { type GroupEntry, parseGroup } from './accounts.js';
import { nameServiceEntry } from './name-service.js';

/**
 * Finds the id of a group by name or number. Synchronous, as the checks of a configuration are.
 * @throws EngineError not-found.
 */
export function groupId(name: string): number {
  if (/^\d+$/.test(name)) return Number(name);
  const own = parseGroup(readFileSync('/etc/group', 'utf8'));
  const isNamed = (entry: GroupEntry): boolean => entry.name === name;
  const found = own.find(isNamed) ?? parseGroup(nameServiceEntry('group', name)).find(isNamed);
  if (!found) throw notFound(`group ${name} not found`);
  return found.gid;
}
