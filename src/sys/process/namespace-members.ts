/** Finds processes by the namespace that they are in, where no control group tells which belong together. */
import { readdir, readlink } from 'node:fs/promises';

/**
 * Returns the processes that are in the process namespace of one of them; none when that is also ours, because then
 * others are in it as well. Those whose namespaces this process may not see are left out.
 */
export async function processesBeside(pid: number): Promise<number[]> {
  const namespaceOf = (name: string): Promise<string | undefined> =>
    readlink(`/proc/${name}/ns/pid`).catch(() => undefined);
  const [wanted, own] = await Promise.all([namespaceOf(String(pid)), namespaceOf('self')]);
  if (wanted === undefined || wanted === own) return [];
  const found: number[] = [];
  for (const name of await readdir('/proc'))
    if (/^\d+$/.test(name) && (await namespaceOf(name)) === wanted) found.push(Number(name));
  return found;
}
