/** Linux capabilities (man 7 capabilities): names, the default set, and what a container ends up with. */
import { invalid } from '../errors/engine-error.js';
import type { OciCapabilities } from './oci-types.js';

/** Names by number, as in linux/capability.h. */
export const CAPABILITIES: readonly string[] = [
  'CHOWN',
  'DAC_OVERRIDE',
  'DAC_READ_SEARCH',
  'FOWNER',
  'FSETID',
  'KILL',
  'SETGID',
  'SETUID',
  'SETPCAP',
  'LINUX_IMMUTABLE',
  'NET_BIND_SERVICE',
  'NET_BROADCAST',
  'NET_ADMIN',
  'NET_RAW',
  'IPC_LOCK',
  'IPC_OWNER',
  'SYS_MODULE',
  'SYS_RAWIO',
  'SYS_CHROOT',
  'SYS_PTRACE',
  'SYS_PACCT',
  'SYS_ADMIN',
  'SYS_BOOT',
  'SYS_NICE',
  'SYS_RESOURCE',
  'SYS_TIME',
  'SYS_TTY_CONFIG',
  'MKNOD',
  'LEASE',
  'AUDIT_WRITE',
  'AUDIT_CONTROL',
  'SETFCAP',
  'MAC_OVERRIDE',
  'MAC_ADMIN',
  'SYSLOG',
  'WAKE_ALARM',
  'BLOCK_SUSPEND',
  'AUDIT_READ',
  'PERFMON',
  'BPF',
  'CHECKPOINT_RESTORE',
].map((name) => `CAP_${name}`);

const DEFAULT: ReadonlySet<string> = new Set(
  [
    'CHOWN',
    'DAC_OVERRIDE',
    'FSETID',
    'FOWNER',
    'MKNOD',
    'NET_RAW',
    'SETGID',
    'SETUID',
    'SETFCAP',
    'SETPCAP',
    'NET_BIND_SERVICE',
    'SYS_CHROOT',
    'KILL',
    'AUDIT_WRITE',
  ].map((name) => `CAP_${name}`),
);

const KNOWN: ReadonlySet<string> = new Set(CAPABILITIES);

/** Returns the capabilities in a `CapBnd` mask of /proc/self/status. */
export function capabilitiesOf(mask: bigint): string[] {
  return CAPABILITIES.filter((_, number) => ((mask >> BigInt(number)) & 1n) === 1n);
}

/**
 * Returns names that clients write (`net_admin`, `CAP_NET_ADMIN`, `ALL`) in the kernel's spelling, without repetitions.
 * @throws EngineError invalid `invalid CapAdd: unknown capability: "CAP_X"`.
 */
export function normalizeCapabilities(field: 'CapAdd' | 'CapDrop', names: readonly string[]): string[] {
  const normal = names.map((given) => {
    const upper = given.toUpperCase();
    if (upper === 'ALL') return upper;
    const name = upper.startsWith('CAP_') ? upper : `CAP_${upper}`;
    if (!KNOWN.has(name)) throw invalid(`invalid ${field}: unknown capability: "${name}"`);
    return name;
  });
  return [...new Set(normal)];
}

export interface CapabilityRequest {
  readonly add: readonly string[];
  readonly drop: readonly string[];
  readonly privileged: boolean;
}

/**
 * Returns the capabilities of a container, in the kernel's order. `ALL` in `add` means all that the host can give,
 * except those in `drop`; `ALL` in `drop` leaves only those in `add`; else `add` wins over `drop`.
 */
export function containerCapabilities(
  { add, drop, privileged }: CapabilityRequest,
  available: readonly string[],
): string[] {
  if (privileged) return [...available];
  const added = new Set(normalizeCapabilities('CapAdd', add));
  const dropped = new Set(normalizeCapabilities('CapDrop', drop));
  if (added.has('ALL')) return available.filter((name) => !dropped.has(name));
  if (dropped.has('ALL')) return available.filter((name) => added.has(name));
  return available.filter((name) => added.has(name) || (DEFAULT.has(name) && !dropped.has(name)));
}

/**
 * Returns the sets of a process. A process that is not root starts with none in effect, as after an execve(2) by such a
 * user. Nothing is inheritable, because files with inheritable capabilities would give them away.
 */
export function processCapabilities(names: readonly string[], uid: number): OciCapabilities {
  return uid === 0 ? { bounding: names, effective: names, permitted: names } : { bounding: names };
}
