/** Groups of the host. */
import { readFile } from 'node:fs/promises';
import { notFound } from '../errors/engine-error.js';

/** The id of a group by name or number. @throws EngineError not-found. */
export async function groupId(name: string): Promise<number> {
  if (/^\d+$/.test(name)) return Number(name);
  for (const line of (await readFile('/etc/group', 'utf8')).split('\n')) {
    const [group, , id] = line.split(':');
    if (group === name) return Number(id);
  }
  throw notFound(`group ${name} not found`);
}
