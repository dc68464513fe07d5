/** A daemon can leave these behind on the machine, and they are found so. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync, rmdirSync } from 'node:fs';
import { basename, join } from 'node:path';

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
 * A container has them somewhere in its own tree; a namespace that merely copied our mounts has them where we do. What
 * is mounted is named from the root of its file system, which may be any directory above `dir`.
 */
function seesFilesOf(dir: string, mountinfo: string): boolean {
  const name = `/${basename(dir)}/`;
  return mountinfo.split('\n').some((line) => line.includes(name) && !line.split(' ')[4]?.startsWith(dir));
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
    const isContainer =
      namespace !== undefined && namespace !== ours && seesFilesOf(dir, readProc(pid, 'mountinfo') ?? '');
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
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    .split('\n')
    .filter((line) => line !== '');
}

/** Names of all links; the first two lines are a heading. No program is started, as every engine asks several times. */
function links(): string[] {
  return readFileSync('/proc/self/net/dev', 'utf8')
    .split('\n')
    .slice(2)
    .map((line) => line.split(':')[0]?.trim() ?? '')
    .filter((name) => name !== '');
}

/**
 * Rules, chains of one's own, and policies other than to accept; a table without any of these is no change. One program
 * says at first whether there is anything at all, as every engine asks several times.
 */
function firewall(): string[] {
  const ruleset = lines('nft', ['list', 'ruleset']).map((line) => line.trim());
  if (isPlain(ruleset) && !hasLegacyTables()) return [];
  const tables = ruleset.filter((line) => line.startsWith('table ') && line.includes(' engine-bridges-'));
  const rules = ['iptables-save', 'ip6tables-save'].flatMap((program) =>
    lines(program, [])
      .map((line) => line.replace(/ \[\d+:\d+\]$/, ''))
      .filter((line) => line.startsWith('-') || (line.startsWith(':') && !line.endsWith(' ACCEPT')))
      .map((line) => `${program}: ${line}`),
  );
  return [...rules, ...tables];
}

/** Tells whether there is nothing but built-in chains that accept everything, in tables of nobody in particular. */
function isPlain(ruleset: readonly string[]): boolean {
  const isBuiltIn = (line: string): boolean => line.startsWith('type ') && line.endsWith(' policy accept;');
  const chains = ruleset.filter((line) => line.startsWith('chain '));
  return (
    chains.length === ruleset.filter(isBuiltIn).length &&
    ruleset.every(
      (line) =>
        line === '}' ||
        isBuiltIn(line) ||
        line.startsWith('chain ') ||
        (line.startsWith('table ') && !line.includes(' engine-bridges-')),
    )
  );
}

/** Tells whether this network namespace has tables of the kind that nft does not show. */
function hasLegacyTables(): boolean {
  return ['ip_tables_names', 'ip6_tables_names'].some((file) => {
    const path = join('/proc/self/net', file);
    return existsSync(path) && readFileSync(path, 'utf8') !== '';
  });
}

/** The control group of a name in each hierarchy that has it. */
function cgroups(name: string): string[] {
  const root = '/sys/fs/cgroup';
  return [root, ...readdirSync(root).map((hierarchy) => join(root, hierarchy))]
    .map((dir) => join(dir, name))
    .filter((path) => existsSync(path));
}

/** Control groups of containers that have theirs below `parent`. */
export function containerCgroups(parent: string): string[] {
  return cgroups(parent).flatMap((dir) =>
    readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(dir, entry.name)),
  );
}

/**
 * Removes the parent of containers' control groups, which no engine does, as its next run may want it. False while
 * processes are in it.
 */
export function removeCgroups(parent: string): boolean {
  try {
    for (const path of [...containerCgroups(parent), ...cgroups(parent)]) rmdirSync(path);
    return true;
  } catch {
    return false;
  }
}

/** A namespace with a default route is the machine's, or one that matters as much. */
export function isMachineNetwork(): boolean {
  return readFileSync('/proc/self/net/route', 'utf8')
    .split('\n')
    .some((line) => line.split('\t')[1] === '00000000');
}

/** Links and rules that were there before. */
export interface NetworkState {
  readonly links: readonly string[];
  readonly firewall: readonly string[];
}

export function networkState(): NetworkState {
  return { links: links(), firewall: firewall() };
}

/** A daemon, and the machine as it was before. */
interface Place {
  readonly dir: string;
  readonly mark: string;
  readonly before: NetworkState;
}

/**
 * Returns what is left of a daemon, in words; empty is good. In a network namespace of our own every new link or rule
 * is its, on the machine's network only those with its `mark` in the name. Rules are told when all else is gone.
 */
export function leftovers(place: Place): string[] {
  const left = things(place);
  // Programs have to be started to see the rules, and who waits for the end asks several times.
  return left.length > 0 ? left : rules(place);
}

function things({ dir, mark, before }: Place): string[] {
  return [
    ...processesOf(dir).map(({ pid, command }) => `process ${pid} ${command}`),
    // A bench mounts this one before the daemon starts.
    ...mountsBelow(dir)
      .filter((path) => path !== `${dir}/exec`)
      .map((path) => `mount ${path}`),
    ...added(links(), before.links, mark).map((name) => `link ${name}`),
    ...containerCgroups(mark).map((path) => `cgroup ${path}`),
  ];
}

function rules({ mark, before }: Place): string[] {
  return added(firewall(), before.firewall, mark).map((rule) => `rule ${rule}`);
}

function added(items: readonly string[], known: readonly string[], mark: string): string[] {
  const isShared = isMachineNetwork();
  return items.filter((item) => !known.includes(item) && (!isShared || item.includes(mark)));
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
