/** The pidfile: tells others which process the daemon is, and a second daemon that there is one. */
import { constants } from 'node:fs';
import { open, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { conflict } from '../../errors/engine-error.js';
import { tryLock } from '../files/file-lock.js';
import { makeDirectories } from '../files/make-directories.js';

export interface Pidfile {
  /** Deletes the file. */
  release(): Promise<void>;
}

/**
 * Writes our pid. The file is locked while its daemon lives: a number alone may be that of some other program by now.
 * So a file that is not locked is stale and is taken over.
 * @throws EngineError conflict when its daemon is alive.
 */
export async function claimPidfile(path: string): Promise<Pidfile> {
  await makeDirectories(dirname(path));
  for (;;) {
    const handle = await open(path, constants.O_RDWR | constants.O_CREAT, 0o644);
    try {
      if (!tryLock(handle.fd)) {
        const holder = (await handle.readFile('utf8')).trim();
        throw conflict(
          `process ${holder} named by the pidfile ${path} is running: stop it, ` +
            'or choose another --pidfile, --data-root and --exec-root',
          { code: 'PIDFILE_IN_USE' },
        );
      }
      // Its last owner may have deleted it between our open and our lock.
      if (await isAt(handle, path)) {
        await handle.truncate();
        await handle.write(`${process.pid}\n`, 0);
        return {
          release: async () => {
            await rm(path, { force: true });
            await handle.close();
          },
        };
      }
      await handle.close();
    } catch (error) {
      await handle.close();
      throw error;
    }
  }
}

async function isAt(handle: FileHandle, path: string): Promise<boolean> {
  const [ours, there] = await Promise.all([handle.stat(), stat(path).catch(() => undefined)]);
  return there !== undefined && ours.ino === there.ino && ours.dev === there.dev;
}
