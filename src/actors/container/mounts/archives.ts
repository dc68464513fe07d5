/** Copying in and out of containers, and the export of their files, in whatever state they are. */
import { randomUUID } from 'node:crypto';
import { access, open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, invalid, notFound } from '../../../errors/engine-error.js';
import type { Archives, ArchiveSource, ContainerView, PathStat, TarOutput } from '../../../ports/archives.js';
import type { VolumePlace } from '../../../ports/volume-place.js';
import type { Logger } from '../../../ports/logger.js';
import type { LayerStore } from '../../../ports/storage.js';
import type { TaskService } from '../../../ports/supervisor.js';
import { detachMount } from '../../../sys/mount/mount.js';
import { takeUserNamespace, type TakenNamespace } from '../../../sys/users/kept-namespaces.js';
import type { ContainerRecord } from '../container.record.js';
import type { VolumeService } from '../deps.js';
import { optional } from '../effects/tools.js';
import type { ContainerDirectory } from '../directory.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';

export interface ContainerArchivesDeps {
  readonly log: Logger;
  readonly containers: ContainerDirectory;
  readonly layers: LayerStore;
  readonly tasks: TaskService;
  readonly archives: Archives;
  readonly volumes: Pick<VolumeService, 'open' | 'closeUse'>;
  /** Directory of a container's own files. */
  filesDir(record: ContainerRecord): string;
  /** Directory in which the images in the mounts of stopped containers are mounted. */
  readonly placesRoot: string;
  /** Returns the numbers of a user (`name:group` as in the container's configuration) by the files below `rootfs`. */
  lookUpUser(rootfs: string, user: string): Promise<{ readonly uid: number; readonly gid: number }>;
  emit(action: string, record: ContainerRecord): void;
}

/**
 * A copy begins anew this often when the container ends under it; before each attempt the daemon has this long to
 * notice.
 */
const ATTEMPTS = 50;
const RETRY_DELAY_MS = 20;
const FILES = ['/etc/resolv.conf', '/etc/hostname', '/etc/hosts'] as const;

export class ContainerArchives {
  constructor(private readonly deps: ContainerArchivesDeps) {}

  /** Returns the facts about a path. Throws not-found, with dockerd's text, for container and path. */
  stat(reference: string, path: string): Promise<PathStat> {
    return this.#retried(reference, path, async (record) => {
      const { view, close } = await this.#openView(record);
      try {
        return await this.deps.archives.stat(view, cleanPath(path));
      } finally {
        await close();
      }
    });
  }

  /** Returns the file or directory at a path as a tar. Throws as `stat`. */
  read(reference: string, path: string): Promise<TarOutput & { readonly stat: PathStat }> {
    return this.#retried(reference, path, async (record) => {
      const { view, close } = await this.#openView(record);
      try {
        const output = await this.deps.archives.read(view, cleanPath(path));
        this.#after(output.ended, close);
        this.deps.emit('archive-path', record);
        return output;
      } catch (error) {
        await close();
        throw error;
      }
    });
  }

  /**
   * Unpacks a tar into the directory at a path. Throws as `stat`, and invalid for read-only places and damaged tars.
   */
  write(
    reference: string,
    path: string,
    options: { readonly noOverwriteDirNonDir: boolean; readonly copyUidGid: boolean },
    source: ArchiveSource,
  ): Promise<void> {
    const { noOverwriteDirNonDir, copyUidGid } = options;
    return this.#retried(reference, path, async (record) => {
      const { view, close } = await this.#openView(record);
      try {
        const owner =
          copyUidGid && record.config.User !== ''
            ? await this.deps.lookUpUser(view.rootfs, record.config.User)
            : undefined;
        await this.deps.archives.write(view, cleanPath(path), { noOverwriteDirNonDir, owner }, source);
      } finally {
        await close();
      }
      this.deps.emit('extract-to-dir', record);
    });
  }

  /**
   * Returns the root file system as a tar, without what is mounted in it. Throws conflict for a container that is going
   * away.
   */
  async export(reference: string): Promise<TarOutput> {
    const record = this.deps.containers.find(reference);
    const { status } = record.state;
    if (status === 'dead') throw conflict(`You cannot export container ${record.id} which is Dead`);
    if (status === 'removing') throw conflict(`You cannot export container ${record.id} which is being removed`);
    const rootfs = await this.deps.layers.mount(record.id);
    const output = this.deps.archives.readDirectory(rootfs, this.deps.layers.mapsOf(record.id));
    this.#after(output.ended, () => this.deps.layers.unmount(record.id));
    this.deps.emit('export', record);
    return output;
  }

  /** Closes a view at the end of a copy. A failure is only logged, because the client has its answer by then. */
  #after(ended: Promise<void>, close: () => Promise<void>): void {
    ended.then(close).catch((error: unknown) => this.deps.log.error({ err: error }, 'closing a view of a container'));
  }

  async #retried<T>(reference: string, path: string, work: (record: ContainerRecord) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work(this.deps.containers.find(reference));
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code === 'ENOENT')
          throw notFound(`Could not find the file ${path} in container ${reference}`, {
            code: 'FILE_NOT_FOUND',
            cause: error,
          });
        if (code === 'ENOTDIR')
          throw invalid(`lstat ${path}: not a directory`, { code: 'NOT_A_DIRECTORY', cause: error });
        if (code !== 'ESRCH' || attempt === ATTEMPTS) throw error;
        await sleep(RETRY_DELAY_MS);
      }
    }
  }

  async #openView(record: ContainerRecord): Promise<{ view: ContainerView; close: () => Promise<void> }> {
    const { layers } = this.deps;
    const rootfs = await layers.mount(record.id);
    const maps = layers.mapsOf(record.id);
    let proc: FileHandle | undefined;
    let userns: TakenNamespace | undefined;
    const volumes = new Map<string, VolumePlace>();
    /** Places where images are mounted, by destination. */
    const images = new Map<string, string>();
    const user = `copy ${randomUUID()}`;
    const places = join(this.deps.placesRoot, user);
    const close = async (): Promise<void> => {
      await proc?.close();
      userns?.release();
      for (const place of images.values()) await detachMount(place);
      if (images.size > 0) await rm(places, { recursive: true });
      // A volume whose driver fails must not keep the other volumes in use, nor make the finished copy fail.
      for (const name of volumes.keys())
        await this.deps.volumes
          .closeUse(name, user)
          .catch((error: unknown) =>
            this.deps.log.error({ err: error, volume: name }, 'volume stays in use after a copy'),
          );
      await layers.unmount(record.id);
    };
    try {
      proc = await this.#openProcess(record);
      if (maps && !proc) userns = await takeUserNamespace(maps);
      const { ReadonlyRootfs: isRootReadOnly, Tmpfs = {} } = record.hostConfig;
      const own = await this.#ownFiles(record);
      for (const { Type, Name, Destination, TopLayer } of record.mounts) {
        if (Type === 'volume' && Name !== undefined && !volumes.has(Name))
          volumes.set(Name, await this.deps.volumes.open(Name, user));
        if (Type !== 'image' || proc) continue;
        const place = join(places, String(images.size));
        await makeDirectories(place, { mode: 0o700 });
        images.set(Destination, place);
        if (TopLayer !== undefined) await layers.mountImage(TopLayer, place, undefined, maps);
      }
      const asked = record.mounts
        .filter(({ Type }) => Type !== 'tmpfs')
        .map(({ Type, Name = '', Source, Destination: destination, RW, Spec }) => {
          const place = Type === 'volume' ? volumes.get(Name) : undefined;
          const source = place?.root ?? images.get(destination) ?? Source;
          const subpath = Spec?.VolumeOptions?.Subpath ?? Spec?.ImageOptions?.Subpath ?? '';
          const paths = [place?.path ?? '', subpath].filter((path) => path !== '');
          return { source, paths, destination, readOnly: !RW, isMapped: place?.isOwn === true };
        });
      const tmpfs = [
        ...record.mounts
          .filter(({ Type }) => Type === 'tmpfs')
          .map(({ Destination, RW }) => ({ destination: Destination, readOnly: !RW })),
        ...Object.entries(Tmpfs).map(([destination, options]) => ({
          destination,
          readOnly: options.split(',').includes('ro'),
        })),
      ];
      const mounts = [
        ...own.filter(({ destination }) => !asked.some((mount) => mount.destination === destination)),
        ...asked,
      ].toSorted((a, b) => depth(a.destination) - depth(b.destination));
      const open = { ...optional('procFd', proc?.fd), ...optional('usernsFd', userns?.fd), ...optional('maps', maps) };
      return { view: { rootfs, mounts, tmpfs, isRootReadOnly, ...open }, close };
    } catch (error) {
      await close();
      throw error;
    }
  }

  /**
   * Opens `/proc/<pid>` of a container. The container's process is asked for after the opening, so that it certainly is
   * the one that was opened.
   */
  async #openProcess(record: ContainerRecord): Promise<FileHandle | undefined> {
    const { pid } = record.state;
    if (pid === 0) return undefined;
    const proc = await open(`/proc/${pid}`).catch(() => undefined);
    if (!proc) return undefined;
    try {
      const task = await this.deps.tasks.get(record.id);
      if (task?.pid === pid && task.status !== 'stopped') return proc;
    } catch (error) {
      await proc.close();
      throw error;
    }
    await proc.close();
    return undefined;
  }

  /** Returns the files that the daemon keeps for a container; they exist from its first start on. */
  async #ownFiles(record: ContainerRecord): Promise<ContainerView['mounts'][number][]> {
    const found = await Promise.all(
      FILES.map(async (destination) => {
        const source = join(this.deps.filesDir(record), destination.slice('/etc/'.length));
        return access(source).then(
          () => [{ source, destination, readOnly: record.hostConfig.ReadonlyRootfs }],
          () => [],
        );
      }),
    );
    return found.flat();
  }
}

const depth = (path: string): number => path.split('/').length;

/** Makes a path absolute, without `.`, `..` and double slashes. A `/` or `/.` at its end stays. */
function cleanPath(path: string): string {
  const kept: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') kept.pop();
    else if (part !== '' && part !== '.') kept.push(part);
  }
  const clean = `/${kept.join('/')}`;
  const end = /(?:^|\/)\.\/*$/.test(path) ? '/.' : path.endsWith('/') ? '/' : '';
  return clean === '/' ? `/${end.slice(1)}` : clean + end;
}
