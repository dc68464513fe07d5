/** Groups of the host. */
import { readFile } from 'node:fs/promises';
import { notFound } from '../../errors/engine-error.js';
import { type GroupEntry, parseGroup } from './accounts.js';
import { nameServiceEntry } from './name-service.js';

/** The id of a group by name or number. @throws EngineError not-found. */
export async function groupId(name: string): Promise<number> {
  if (/^\d+$/.test(name)) return Number(name);
  const own = parseGroup(await readFile('/etc/group', 'utf8'));
  const isNamed = (entry: GroupEntry): boolean => entry.name === name;
  const found = own.find(isNamed) ?? parseGroup(nameServiceEntry('group', name)).find(isNamed);
  if (!found) throw notFound(`group ${name} not found`);
  return found.gid;
}
