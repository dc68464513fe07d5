/** A user `remapper` with ids for containers, that only this test process and its daemons know of; and one without. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cleanup } from './cleanup.js';
import { enterOwnEtc } from './own-etc.js';

/** Where the ids of containers begin on the host: those of users from 0 to 999, of users from 1000 on, of groups. */
export const [FIRST, SECOND, GROUPS] = [300_000, 200_000, 400_000];
export const hostUid = (uid: number): number => (uid < 1000 ? FIRST + uid : SECOND + uid - 1000);
export const hostGid = (gid: number): number => GROUPS + gid;

/** @param dir a directory that `cleanup` removes later. */
export function makeRemapper(dir: string, cleanup: Cleanup): void {
  const etc = join(dir, 'etc');
  mkdirSync(etc);
  enterOwnEtc(etc);
  cleanup.add(async () => void execFileSync('umount', ['-l', '/etc', etc]));
  appendFileSync(
    '/etc/passwd',
    'remapper:x:7001:7002::/nonexistent:/usr/sbin/nologin\nrangeless:x:7003:7003::/:/bin/sh\n',
  );
  appendFileSync('/etc/group', 'remapper:x:7002:\nrangeless:x:7003:\n');
  writeFileSync('/etc/subuid', `remapper:${FIRST}:1000\nsomebody:100000:65536\nremapper:${SECOND}:64536\n`);
  writeFileSync('/etc/subgid', `remapper:${GROUPS}:65536\n`);
}
