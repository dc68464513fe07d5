/**
 * Tasks whose runtime was killed while it made them. It makes the control groups before it writes anything down, so
 * that whoever deletes such a container afterwards finds nothing to delete, and the groups would stay for ever.
 */
import { access, readdir, readFile, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { OciSpec } from '../ports/supervisor.js';

/** Processes that were killed are in their group until the kernel has taken them apart. */
const KILLED_MS = 5_000;
const CHECK_MS = 10;

export interface UnbornTask {
  readonly id: string;
  /** Path of its control group in each hierarchy. */
  readonly group: string;
}

/**
 * Finds the tasks that have no process yet, by containerd's files of them. containerd deletes these as it starts. Those
 * with a group of systemd are left out: it removes them itself.
 */
export async function findUnborn(taskDir: string): Promise<UnbornTask[]> {
  const ids = await readdir(taskDir).catch(() => []);
  const found = await Promise.all(
    ids.map(async (id) => {
      const isBorn = await access(join(taskDir, id, 'init.pid')).then(
        () => true,
        () => false,
      );
      const group = isBorn ? '' : await groupIn(join(taskDir, id, 'config.json'));
      return group === '' ? [] : [{ id, group }];
    }),
  );
  return found.flat();
}

/** Removes the control groups of tasks, from each hierarchy that has them. @throws when one is still in use. */
export async function removeGroups(tasks: readonly UnbornTask[]): Promise<void> {
  if (tasks.length === 0) return;
  const roots = hierarchies(await readFile('/proc/self/mountinfo', 'utf8'));
  const deadline = performance.now() + KILLED_MS;
  await Promise.all(roots.flatMap((root) => tasks.map(({ group }) => removeGroup(join(root, group), deadline))));
}

/** '' where the file is not there, or was not written to its end, too. */
async function groupIn(file: string): Promise<string> {
  try {
    return groupOf(JSON.parse(await readFile(file, 'utf8')) as OciSpec);
  } catch {
    return '';
  }
}

/** The control group that a task with this specification gets. '' where it names no path. */
export function groupOf({ linux }: OciSpec): string {
  const path = (linux as { readonly cgroupsPath?: string } | undefined)?.cgroupsPath ?? '';
  return path !== '/' && join('/', path) === path ? path : '';
}

/** The mount points of all hierarchies, also of those without a controller, in /proc/PID/mountinfo (man 5 proc). */
function hierarchies(mountinfo: string): string[] {
  const lines = mountinfo.split('\n').filter((line) => line.includes(' - cgroup ') || line.includes(' - cgroup2 '));
  return [...new Set(lines.flatMap((line) => line.split(' ')[4] ?? []))];
}

async function removeGroup(path: string, deadline: number): Promise<void> {
  for (;;) {
    try {
      await rmdir(path);
      return;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return;
      if (code !== 'EBUSY' || performance.now() > deadline) throw error;
      await delay(CHECK_MS);
    }
  }
}
