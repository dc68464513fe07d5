/** User namespaces that are made for their maps: mounts take the maps of one (mount_setattr(2)). */
import { closeSync, constants, openSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { messageOf, unavailable } from '../../errors/engine-error.js';
import type { IdMaps, IdRange } from '../../ports/id-maps.js';
import { closeFd, makeBlocking } from '../files/fd.js';
import { PipeEnd } from '../net/pipe-end.js';
import { socketPair } from '../net/socket-pair.js';
import { openPidfd } from '../process/pidfd.js';
import { onEnd, spawnProgram, takeStatus } from '../process/spawn.js';

/**
 * Returns the descriptor of a user namespace that has these maps and no process; the caller closes it. Only a process
 * can make one: `cat`, which is started in one, says so by giving back the byte that it is sent. It ends with its
 * socket, so also with this daemon.
 * @throws EngineError unavailable when this host gives no user namespaces, or not these ids.
 */
export async function openUserNamespace(maps: IdMaps): Promise<number> {
  const [ours, theirs] = socketPair();
  const none = openSync('/dev/null', constants.O_RDWR);
  let answer: PipeEnd | undefined;
  let ended: Promise<void> | undefined;
  try {
    makeBlocking(theirs);
    const pid = await spawnProgram('unshare', ['--user', 'cat'], { stdio: [theirs, theirs, none] });
    ended = new Promise<void>((resolve) => {
      onEnd(openPidfd(pid), () => {
        takeStatus(pid);
        resolve();
      });
    });
    closeFd(theirs);
    await new Promise<void>((resolve, reject) => {
      const onNone = (): void => reject(unavailable('unshare --user failed'));
      answer = new PipeEnd(ours, { onData: () => resolve(), onEnd: onNone, onDrain: () => undefined });
      answer.write(Buffer.from('\n'));
    });
    await writeFile(`/proc/${pid}/uid_map`, rangesText(maps.uids));
    await writeFile(`/proc/${pid}/gid_map`, rangesText(maps.gids));
    return openSync(`/proc/${pid}/ns/user`, constants.O_RDONLY);
  } catch (error) {
    if (ended === undefined) closeFd(theirs);
    throw unavailable(`a user namespace cannot be made: ${messageOf(error)}`, { cause: error });
  } finally {
    closeSync(none);
    if (answer === undefined) closeFd(ours);
    else answer.close();
    await ended;
  }
}

/** Returns ranges as the kernel reads them (user_namespaces(7)). */
export function rangesText(ranges: readonly IdRange[]): string {
  return ranges.map(({ containerId, hostId, count }) => `${containerId} ${hostId} ${count}\n`).join('');
}
