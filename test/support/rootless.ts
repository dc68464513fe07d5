/**
 * A machine with an ordinary user, for daemons of that user: an account with subordinate ids, a directory for its
 * session, and the devices that such daemons need. All of it is in a mount namespace of the test.
 */
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { EngineKind } from './engine.js';
import { enterOwnEtc } from './own-etc.js';

const NAME = 'ordinary';
const USER = 7777;
/** The user's subordinate ids begin here. */
export const FIRST_ID = 1_700_000;
const IDS = 65_536;
/** This file is in dist/test/support. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
/** Character devices that every user may open on a machine with udev. */
const DEVICES: Readonly<Record<string, number>> = { '/dev/net/tun': 200, '/dev/fuse': 229 };

export interface OrdinaryUser {
  readonly uid: number;
  /** XDG_RUNTIME_DIR. */
  readonly runtimeDir: string;
  /** Path of engined-rootless. */
  readonly script: string;
  /** Returns a command line that runs as this user in a session, whose home is a directory. */
  as(home: string, ...command: string[]): string[];
}

/** Makes the user, and moves this thread to where it exists. @param dir is empty, and others may pass it. */
export function makeOrdinaryUser(dir: string): OrdinaryUser {
  const at = (name: string): string => join(dir, name);
  for (const name of ['etc', 'bin', 'program']) mkdirSync(at(name));
  enterOwnEtc(at('etc'));
  appendFileSync('/etc/passwd', `${NAME}:x:${USER}:${USER}::/nonexistent:/bin/sh\n`);
  appendFileSync('/etc/group', `${NAME}:x:${USER}:\n`);
  for (const file of ['/etc/subuid', '/etc/subgid']) writeFileSync(file, `${NAME}:${FIRST_ID}:${IDS}\n`);
  mkdirSync('/run/user', { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', 'users', '/run/user']);
  const runtimeDir = `/run/user/${USER}`;
  mkdirSync(runtimeDir, { mode: 0o700 });
  chownSync(runtimeDir, USER, USER);
  for (const [path, minor] of Object.entries(DEVICES)) {
    if (!existsSync(path)) continue;
    execFileSync('mknod', ['--mode=666', at(`device-${minor}`), 'c', '10', String(minor)]);
    execFileSync('mount', ['--bind', at(`device-${minor}`), path]);
  }
  // The repository may be where only root gets.
  execFileSync('mount', ['--bind', ROOT, at('program')]);
  symlinkSync(at('program/dist/bundle/main.js'), at('bin/engined'));
  symlinkSync(at('program/packaging/engined-rootless'), at('bin/engined-rootless'));
  const ids = ['--reuid', String(USER), '--regid', String(USER), '--clear-groups'];
  const env = [`PATH=${at('bin')}:/usr/local/bin:/usr/bin:/bin`, `XDG_RUNTIME_DIR=${runtimeDir}`];
  return {
    uid: USER,
    runtimeDir,
    script: at('bin/engined-rootless'),
    as: (home, ...command) => ['setpriv', ...ids, 'env', '-i', ...env, `HOME=${home}`, ...command],
  };
}

/** The daemon of a user, with its defaults; its directory is the user's home. @param env are lines `NAME=value`. */
export function rootlessEngine(
  user: OrdinaryUser,
  args: readonly string[] = [],
  env: readonly string[] = [],
): EngineKind {
  return {
    name: 'engined',
    isTidy: true,
    mark: 'rootless',
    command(dir, socketPath) {
      chownSync(dir, user.uid, user.uid);
      // The socket is in the directory of the session.
      if (!lstatSync(socketPath, { throwIfNoEntry: false }))
        symlinkSync(join(user.runtimeDir, 'engine.sock'), socketPath);
      return user.as(dir, 'env', ...env, 'engined-rootless', ...args);
    },
  };
}

/**
 * Returns the variable PATH with a rootlesskit whose namespaces are said to be ready some looks before it has written
 * which process is the first of them, as it can happen on a busy machine.
 */
export function withEarlyNamespaces({ script: launcher }: OrdinaryUser): string {
  const programs = dirname(launcher);
  const dir = join(programs, 'early');
  mkdirSync(dir);
  const real = execFileSync('which', ['rootlesskit'], { encoding: 'utf8' }).trim();
  const script = `#!/bin/sh\nfor ready; do :; done\n: > "$ready"\nsleep 0.3\nexec ${real} "$@"\n`;
  writeFileSync(join(dir, 'rootlesskit'), script, { mode: 0o755 });
  return `PATH=${dir}:${programs}:/usr/local/bin:/usr/bin:/bin`;
}

/** Returns command lines of the processes that are the user's, as itself or by a subordinate id. */
export function processesOfUser({ uid }: OrdinaryUser): string[] {
  const isOfUser = (id: number): boolean => id === uid || (id >= FIRST_ID && id < FIRST_ID + IDS);
  return readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const owner = Number(/^Uid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
      const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
      // Processes that nobody has collected yet have none.
      return isOfUser(owner) && command !== '' ? [command] : [];
    } catch {
      return []; // It has ended meanwhile.
    }
  });
}
