/** Reads the mount options of the local volume driver: `type`, `device` and `o`, as mount(8) has them. */
import { internal, invalid, messageOf } from '../errors/engine-error.js';
import { mountNow } from '../sys/mount/mount.js';
import { ownMember } from '../text/own-member.js';

export type VolumeOptions = Readonly<Record<string, string>>;

const KNOWN = new Set(['type', 'o', 'device', 'size']);
const NEEDS: Readonly<Record<string, readonly string[]>> = {
  device: ['type'],
  type: ['device'],
  o: ['device', 'type'],
};

/** Checks the options. @throws EngineError invalid, in the known engine's words. */
export function checkVolumeOptions(name: string, options: VolumeOptions): void {
  const refuse = (reason: string): Error => invalid(`create ${name}: ${reason}`, { code: 'VOLUME_OPTION' });
  for (const key of Object.keys(options)) if (!KNOWN.has(key)) throw refuse(`invalid option: ${JSON.stringify(key)}`);
  if (options['size'] !== undefined) throw refuse('quota size requested but no quota support');
  for (const key of Object.keys(options)) {
    for (const needed of ownMember(NEEDS, key) ?? [])
      if (options[needed] === undefined) throw refuse(`missing required option: ${JSON.stringify(needed)}`);
  }
}

export interface LocalMount {
  readonly device: string;
  readonly target: string;
  readonly type: string;
  /** Flags and options for the file system, separated by commas. */
  readonly options: string;
}

/** linux/mount.h; a word sets its bits or, where the second number is given, clears them. */
const FLAGS: Readonly<Record<string, readonly [set: number, clear?: number]>> = {
  defaults: [0],
  ro: [1],
  rw: [0, 1],
  nosuid: [2],
  suid: [0, 2],
  nodev: [4],
  dev: [0, 4],
  noexec: [8],
  exec: [0, 8],
  sync: [16],
  async: [0, 16],
  remount: [32],
  mand: [64],
  nomand: [0, 64],
  dirsync: [128],
  noatime: [1024],
  atime: [0, 1024],
  nodiratime: [2048],
  diratime: [0, 2048],
  bind: [4096],
  rbind: [4096 | 16384],
  relatime: [1 << 21],
  norelatime: [0, 1 << 21],
  strictatime: [1 << 24],
  nostrictatime: [0, 1 << 24],
};
const PROPAGATION: Readonly<Record<string, number>> = {
  unbindable: 1 << 17,
  private: 1 << 18,
  slave: 1 << 19,
  shared: 1 << 20,
  runbindable: (1 << 17) | 16384,
  rprivate: (1 << 18) | 16384,
  rslave: (1 << 19) | 16384,
  rshared: (1 << 20) | 16384,
};
const MS_RDONLY = 1;
const MS_REMOUNT = 32;
const MS_BIND = 4096;

/** Options with which cifs is told a password (mount.cifs(8)): errors are shown to others, and logged. */
const SECRETS = new Set(['password', 'password2', 'pass', 'pass2']);

function withoutSecret(word: string): string {
  const name = word.slice(0, Math.max(word.indexOf('='), 0));
  return SECRETS.has(name) ? `${name}=********` : word;
}

/**
 * Mounts. It may wait for a server on the network, so call it only in a thread of its own.
 * @throws EngineError internal, in the known engine's words.
 */
export function mountLocal({ device, target, type, options }: LocalMount): void {
  let flags = 0;
  let propagation = 0;
  const data: string[] = [];
  for (const word of options.split(',').filter(Boolean)) {
    const [set, clear = 0] = ownMember(FLAGS, word) ?? [];
    if (set !== undefined) flags = (flags & ~clear) | set;
    else if (Object.hasOwn(PROPAGATION, word)) propagation = PROPAGATION[word] ?? 0;
    else data.push(word);
  }
  try {
    mountNow(device, target, type, flags, data.join(','));
    if (propagation !== 0) mountNow('', target, '', propagation, '');
    // A bind takes over the flags of its source, so read-only needs a second call.
    if ((flags & (MS_BIND | MS_RDONLY)) === (MS_BIND | MS_RDONLY)) mountNow('', target, '', flags | MS_REMOUNT, '');
  } catch (error) {
    const reason = messageOf(error).replace(/^mount: (.*) \(\w+\)$/, '$1');
    const call = `mount ${device}:${target}, flags: 0x${flags.toString(16)}`;
    const withData = data.length > 0 ? `${call}, data: ${data.map(withoutSecret).join(',')}` : call;
    throw internal(`failed to mount local volume: ${withData}: ${reason}`, { cause: error });
  }
}
