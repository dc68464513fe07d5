/** Tells whether a process is still the one that it was: its number may have gone to another. */
import { readFile } from 'node:fs/promises';

/** Returns true while the process of this number is in a control group whose path has `name` in it. */
export async function runsInCgroup(pid: number, name: string): Promise<boolean> {
  const groups = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => '');
  return groups.includes(name);
}
