/**
 * Everything that a RUN is given besides its files, in a file system in memory: nothing of it is ever on a disk, and
 * one unmount removes it. The start of the daemon clears all that a killed one has left.
 */
import { chmod, chown, mkdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Owner } from '../../../ports/id-maps.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import { detachMount, mountFileSystem } from '../../../sys/mount/mount.js';

// linux/mount.h
const MS_NOSUID = 2;
const MS_NODEV = 4;
const MS_BIND = 4096;
const MS_REC = 16384;

export class StepPlace {
  readonly #directory: string;
  readonly #mounts: string[] = [];
  #count = 0;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async open(root: string, id: string): Promise<StepPlace> {
    const directory = join(root, id);
    await makeDirectories(root, { mode: 0o700 });
    await mkdir(directory, { mode: 0o700 });
    try {
      await mountFileSystem('tmpfs', directory, 'tmpfs', 'mode=0700', MS_NOSUID | MS_NODEV);
    } catch (error) {
      await rmdir(directory);
      throw error;
    }
    return new StepPlace(directory);
  }

  /** Makes a file and returns its path. */
  async file(content: string | Uint8Array, mode: number, { uid, gid }: Owner): Promise<string> {
    const path = this.#next();
    await writeFile(path, content, { flag: 'wx', mode: 0o600 });
    if (uid !== 0 || gid !== 0) await chown(path, uid, gid);
    await chmod(path, mode);
    return path;
  }

  /** Makes a mount of an open file or directory, which stays what it is however its name changes. */
  async pin(fd: number, isDirectory: boolean): Promise<string> {
    const path = this.#next();
    await (isDirectory ? mkdir(path) : writeFile(path, '', { flag: 'wx' }));
    await mountFileSystem(`/proc/self/fd/${fd}`, path, '', '', MS_BIND | MS_REC);
    this.#mounts.push(path);
    return path;
  }

  /** Shows a directory so that changes of its files go into other directories, which are on a disk. */
  async overlay(lowerFd: number, upper: string, work: string): Promise<string> {
    const path = this.#next();
    await mkdir(path);
    const options = `lowerdir=/proc/self/fd/${lowerFd},upperdir=${upper},workdir=${work}`;
    await mountFileSystem('overlay', path, 'overlay', options);
    this.#mounts.push(path);
    return path;
  }

  /** Ends one of these mounts before the others. */
  async unmount(path: string): Promise<void> {
    const at = this.#mounts.indexOf(path);
    if (at >= 0) this.#mounts.splice(at, 1);
    await detachMount(path);
  }

  async close(): Promise<void> {
    for (const path of this.#mounts.splice(0).toReversed()) await detachMount(path);
    await detachMount(this.#directory);
    await rmdir(this.#directory);
  }

  #next(): string {
    return join(this.#directory, String(++this.#count));
  }
}
