/**
 * The text of the default AppArmor profile. It permits what capabilities, namespaces and the seccomp filter decide on
 * already, and refuses what none of them refuses: mounts, writes to the kernel's files in /proc and /sys, and looks
 * into processes outside the container. The known container engines refuse the same.
 */

/** The name under which the kernel has the profile. */
export const DEFAULT_PROFILE = 'engine-default';

export interface ProfileHost {
  /** Version of the host's apparmor_parser: a parser refuses rules that are newer than itself. */
  readonly parser: readonly [major: number, minor: number];
  /** Label of the daemon, which sends signals to containers: `unconfined`, or the name of its own profile. */
  readonly daemonLabel: string;
}

/** Senders of signals whose profiles distributions ship by these names: the runtimes deliver those of `docker kill`. */
const RUNTIME_LABELS = ['unconfined', 'runc', 'crun'];

/** A label with other characters, such as that of a stack of profiles, would need quotes: it gets no rule. */
const PLAIN_LABEL = /^[\w./-]+$/;

/** Returns the text for `apparmor_parser`. */
export function defaultProfile({ parser, daemonLabel }: ProfileHost): string {
  const labels = [...new Set([...RUNTIME_LABELS, daemonLabel])].filter((label) => PLAIN_LABEL.test(label));
  const rules = [
    'network,',
    // A seccomp filter cannot see the family in socketcall(2), by which 32-bit programs make sockets.
    'deny network alg,',
    'capability,',
    'file,',
    'umount,',
    ...(isAtLeast(parser, [2, 9]) ? processRules(labels) : []),
    // Newer parsers know these. Capabilities and seccomp decide on them.
    ...(isAtLeast(parser, [4, 0]) ? ['userns,', 'mqueue,', 'io_uring,'] : []),
    ...KERNEL_FILES,
    'deny mount,',
  ];
  const body = rules.map((rule) => `  ${rule}\n`).join('');
  return `profile ${DEFAULT_PROFILE} flags=(attach_disconnected,mediate_deleted) {\n${body}}\n`;
}

function isAtLeast([major, minor]: ProfileHost['parser'], [first, second]: ProfileHost['parser']): boolean {
  return major > first || (major === first && minor >= second);
}

/** Processes of a container may signal and trace each other; those of the host may do so from outside. */
function processRules(senders: readonly string[]): string[] {
  return [
    `signal (send, receive) peer=${DEFAULT_PROFILE},`,
    ...senders.map((label) => `signal (receive) peer=${label},`),
    `ptrace (trace, tracedby, read, readby) peer=${DEFAULT_PROFILE},`,
    'ptrace (tracedby, readby) peer=unconfined,',
    `unix peer=(label=${DEFAULT_PROFILE}),`,
  ];
}

const READ_ONLY = 'w';
/** Writes, locks, links and programs: the files may be read. */
const LOOK_ONLY = 'wklx';
const HIDDEN = 'rwklx';

const deny = (paths: readonly string[], access: string): string[] => paths.map((path) => `deny ${path} ${access},`);

/**
 * In /proc there are processes (numbers), `sys`, and the kernel's own files, which are read-only here; of `sys` only
 * the limits of shared memory may be written, which belong to the container's namespace. In /sys only control groups
 * may be written.
 */
const KERNEL_FILES = [
  ...deny(['/proc/*', '/proc/[^0-9s]*/**', '/proc/s[^y]*/**', '/proc/sy[^s]*/**', '/proc/sys?*/**'], READ_ONLY),
  ...deny(allExcept('/proc/sys/', 'kernel/shm'), READ_ONLY),
  ...deny(['/proc/sysrq-trigger', '/proc/kcore'], HIDDEN),
  ...deny(allExcept('/sys/', 'fs/cgroup'), LOOK_ONLY),
  ...deny(['/sys/firmware/**', '/sys/devices/virtual/powercap/**', '/sys/kernel/security/**'], HIDDEN),
];

/** Returns patterns that together match every path below `directory` that does not begin with `kept`. */
function allExcept(directory: string, kept: string): string[] {
  return Array.from(kept, (letter, index) => `${directory}${kept.slice(0, index)}[^${letter}]**`);
}
