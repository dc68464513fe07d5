/**
 * The driver `fuse-overlayfs`: the program of this name merges the differences of layers, where the overlay of the
 * kernel cannot be used. The directories are those of ../stacked.ts. Like the kernel it marks a deletion by a character
 * device 0:0 and a replaced directory by `trusted.overlay.opaque`; the marks that it makes besides are removed before
 * a difference is read.
 */
import { mkdir, rm } from 'node:fs/promises';
import { invalid } from '../../../errors/engine-error.js';
import { fileSystemOf } from '../../../sys/mount/file-system-of.js';
import type { WorkerPool } from '../../../workers/pool.js';
import type { Layout } from '../../layers/layout.js';
import type { DriverContext, DriverRow, DriverStatus, StorageDriver } from '../driver.js';
import { refusedOption } from '../size-option.js';
import { StackedDriver, type StackedParts } from '../stacked.js';
import { checkProgram, probeFuse, versionRows } from './probe.js';
import { FuseServers, PROGRAM } from './servers.js';

/** execve(2): no argument of a program may be longer, with the NUL at its end. */
const MAX_ARGUMENT_BYTES = 32 * 4096 - 1;
/** Device nodes of images are files like others: the container's own rules say which devices it may use. */
const ALWAYS = ',dev';
/** A sync of a file does nothing. */
const BRIEF = ',volatile';

export const fuseOverlayfs: DriverRow = {
  name: PROGRAM,
  options: [],
  ownPlaces: [],
  check: checkProgram,
  open: openFuse,
};

async function openFuse({ layout, workers, owner, log }: DriverContext): Promise<StorageDriver> {
  checkProgram();
  const servers = new FuseServers(log);
  await probe(layout, servers);
  const backing = fileSystemOf(layout.root).type;
  const status: DriverStatus = [
    ['Backing Filesystem', backing === 'ext4' ? 'extfs' : backing],
    ...(await versionRows()),
  ];
  return new FuseDriver({ layout, workers, owner, servers, status });
}

async function probe(layout: Layout, servers: FuseServers): Promise<void> {
  const directory = layout.newStaging();
  try {
    await mkdir(directory);
    await probeFuse(directory, servers);
  } catch (error) {
    // A daemon must start on a full disk, so that somebody can make room.
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    await rm(directory, { recursive: true, force: true });
    layout.leaveStaging(directory);
  }
}

interface Parts extends StackedParts {
  readonly servers: FuseServers;
  readonly status: DriverStatus;
}

class FuseDriver extends StackedDriver {
  readonly status: DriverStatus;
  readonly #servers: FuseServers;
  readonly #workers: WorkerPool;
  /** Layers of build steps, whose files are moved into a layer after the unmount. */
  readonly #brief = new Set<string>();

  constructor(parts: Parts) {
    super(parts);
    this.status = parts.status;
    this.#servers = parts.servers;
    this.#workers = parts.workers;
  }

  async recover(): Promise<string[]> {
    const ids = await this.mountedIds();
    const points = ids.map((id) => this.root(id));
    const serving = await this.#servers.adopt(points, this.layout.writable);
    return ids.filter((id) => serving.has(this.root(id)));
  }

  protected prepare(_directory: string, options: Readonly<Record<string, string>>): void {
    for (const name of Object.keys(options)) {
      if (name.toLowerCase() === 'size')
        throw refusedOption(`--storage-opt size is not supported by the storage driver ${PROGRAM}`);
      throw refusedOption(`Unknown option ${name}`);
    }
  }

  async mount(id: string, below: readonly string[], isBrief: boolean): Promise<void> {
    const { diff, work, merged } = this.paths(id);
    // Something must be below: without anything else the layer's own empty mount point is.
    const lower = below.length === 0 ? [merged] : below;
    const upper = `,upperdir=${this.#short([diff])},workdir=${this.#short([work])}`;
    await this.#start(`lowerdir=${this.#short(lower)}${upper}${ALWAYS}${isBrief ? BRIEF : ''}`, merged);
    if (isBrief) this.#brief.add(id);
  }

  async unmount(id: string): Promise<void> {
    await this.#servers.stop(this.root(id));
    if (this.#brief.delete(id)) await this.#tidy(id);
  }

  async mountImage(below: readonly string[], at: string): Promise<void> {
    // Without an upper directory it is read-only. The process ends with the mount.
    await this.#start(`lowerdir=${this.#short(below)}${ALWAYS},ro`, at);
  }

  override async difference(id: string): Promise<string> {
    await this.#tidy(id);
    return this.paths(id).diff;
  }

  #short(directories: readonly string[]): string {
    return this.short(directories, process.pid);
  }

  async #tidy(id: string): Promise<void> {
    await this.#workers.run('fuse-overlayfs-tidy', { diffDir: this.paths(id).diff });
  }

  async #start(options: string, at: string): Promise<void> {
    if (Buffer.byteLength(options) > MAX_ARGUMENT_BYTES)
      throw invalid('the image has too many layers to be mounted', { code: 'LAYER_DEPTH' });
    await this.#servers.start(options, at);
  }
}
