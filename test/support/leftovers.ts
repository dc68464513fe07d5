/** What a daemon can leave behind on the machine, and how to find it. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

export interface ProcessInfo {
  readonly pid: number;
  readonly command: string;
}

/** undefined where the process has ended meanwhile. */
function readProc(pid: string, file: string): string | undefined {
  try {
    return readFileSync(join('/proc', pid, file), 'utf8');
  } catch {
    return undefined;
  }
}

function mountNamespace(pid: string): string | undefined {
  try {
    return readlinkSync(join('/proc', pid, 'ns', 'mnt'));
  } catch {
    return undefined;
  }
}

/**
 * Processes of a daemon that has its files under `dir`: daemon, supervisor and shims name it on their command lines;
 * containers have it among the mounts of their own mount namespace.
 */
export function processesOf(dir: string): ProcessInfo[] {
  const ours = mountNamespace('self');
  const found: ProcessInfo[] = [];
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
    const command = readProc(pid, 'cmdline')?.replaceAll('\0', ' ').trim();
    // Kernel threads and zombies have no command line.
    if (command === undefined || command === '') continue;
    const namespace = mountNamespace(pid);
    const isContainer = namespace !== undefined && namespace !== ours && (readProc(pid, 'mountinfo')?.includes(dir) ?? false);
    if (command.includes(dir) || isContainer) found.push({ pid: Number(pid), command });
  }
  return found;
}

export function mountsBelow(dir: string): string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path.startsWith(`${dir}/`));
}

function lines(program: string, args: readonly string[]): string[] {
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n').filter((line) => line !== '');
}

function links(): string[] {
  return lines('ip', ['-o', 'link', 'show']).map((line) => line.split(': ')[1] ?? line);
}

/** Rules, chains of one's own, and policies other than to accept; a table without any of these is no change. */
function firewall(): string[] {
  return ['iptables-save', 'ip6tables-save'].flatMap((program) =>
    lines(program, [])
      .map((line) => line.replace(/ \[\d+:\d+\]$/, ''))
      .filter((line) => line.startsWith('-') || (line.startsWith(':') && !line.endsWith(' ACCEPT')))
      .map((line) => `${program}: ${line}`),
  );
}

/** Control groups named by a container's ID, in every hierarchy. */
function containerCgroups(dir = '/sys/fs/cgroup', depth = 0): string[] {
  if (depth > 4) return [];
  let names: string[];
  try {
    names = readdirSync(dir, { withFileTypes: true }).filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch {
    return [];
  }
  return names.flatMap((name) => (/(^|[-_:])[0-9a-f]{64}(\.scope)?$/.test(name) ? [join(dir, name)] : containerCgroups(join(dir, name), depth + 1)));
}

export interface MachineState {
  readonly links: readonly string[];
  readonly firewall: readonly string[];
  readonly cgroups: readonly string[];
}

export function machineState(): MachineState {
  return { links: links(), firewall: firewall(), cgroups: containerCgroups() };
}

function added(before: readonly string[], after: readonly string[], kind: string): string[] {
  const known = new Set(before);
  return after.filter((item) => !known.has(item)).map((item) => `${kind} ${item}`);
}

/** Everything of the daemon under `dir`, and everything new on the machine since `before`, in words. Empty is good. */
export function leftovers(dir: string, before: MachineState): string[] {
  const now = machineState();
  return [
    ...processesOf(dir).map(({ pid, command }) => `process ${pid} ${command}`),
    ...mountsBelow(dir).map((path) => `mount ${path}`),
    ...added(before.links, now.links, 'link'),
    ...added(before.firewall, now.firewall, 'rule'),
    ...added(before.cgroups, now.cgroups, 'cgroup'),
  ];
}

/** Ends what is left under `dir`, so that a failed test does not spoil the next one. */
export function sweep(dir: string): void {
  for (const { pid } of processesOf(dir)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // Ended by itself meanwhile.
    }
  }
  // Innermost first; detached, because a process that is just dying may still hold it.
  for (const path of mountsBelow(dir).toReversed()) execFileSync('umount', ['--lazy', path]);
}
