/**
 * The driver `overlay2`: the kernel's overlay file system merges the differences of layers, which stay as they are.
 *
 *   empty                           nothing, ever: the second directory of mounts that need two
 *
 * The rest is in ../stacked.ts.
 */
import { chown, lstat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { internal, invalid, messageOf, unavailable } from '../../../errors/engine-error.js';
import type { IdMaps } from '../../../ports/id-maps.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import { fileSystemOf } from '../../../sys/mount/file-system-of.js';
import { hostOwner } from '../../../sys/users/id-maps.js';
import { withUserNamespace } from '../../../sys/users/kept-namespaces.js';
import { isInUserNamespace } from '../../../sys/users/user-namespace.js';
import { detachMount, MAX_MOUNT_OPTIONS_BYTES, mountFileSystem } from '../../../sys/mount/mount.js';
import { DIFFERENCE } from '../../layers/layout.js';
import type { DriverContext, DriverRow, DriverStatus, MappedMounts, StorageDriver } from '../driver.js';
import { StackedDriver, type StackedParts } from '../stacked.js';
import { type MountOptions, mountOptionsFor } from './probe.js';
import { defaultSize, SIZE_OPTION, SizeLimits } from './size-limits.js';

const EMPTY = 'empty';
const NAME = 'overlay2';

export const overlay2: DriverRow = {
  name: NAME,
  options: [
    { name: SIZE_OPTION, value: 'size' },
    {
      name: 'overlay2.override_kernel_check',
      value: 'any',
      idle: 'overlay2.override_kernel_check was for kernels before 4.0',
    },
  ],
  ownPlaces: [EMPTY],
  check: (directory, storageOpts) => void defaultSize(directory, fileSystemOf(directory), storageOpts),
  showsOwners: true,
  hasLabels: true,
  open: openOverlay,
};

async function openOverlay({ layout, workers, storageOpts, owner, labelOf }: DriverContext): Promise<StorageDriver> {
  await makeDirectories(join(layout.root, EMPTY), { mode: 0o710 });
  const mountOptions = await mountOptionsFor(layout);
  const backing = fileSystemOf(layout.root);
  const sizes = new SizeLimits(layout, backing, storageOpts);
  return new OverlayDriver({ layout, workers, sizes, owner, labelOf, mountOptions, backing: backing.type });
}

interface Parts extends StackedParts {
  readonly sizes: SizeLimits;
  readonly mountOptions: MountOptions;
  readonly labelOf: DriverContext['labelOf'];
  readonly backing: string;
}

interface MappedMount {
  readonly lower: readonly string[];
  readonly upper: { readonly diff: string; readonly work: string } | undefined;
  readonly at: string;
  readonly options: string;
  readonly maps: IdMaps;
}

class OverlayDriver extends StackedDriver {
  readonly status: DriverStatus;
  readonly #sizes: SizeLimits;
  readonly #mountOptions: MountOptions;
  readonly #labelOf: DriverContext['labelOf'];
  readonly #workers: DriverContext['workers'];

  constructor(parts: Parts) {
    super(parts);
    this.#sizes = parts.sizes;
    this.#mountOptions = parts.mountOptions;
    this.#labelOf = parts.labelOf;
    this.#workers = parts.workers;
    this.status = [
      ['Backing Filesystem', parts.backing === 'ext4' ? 'extfs' : parts.backing],
      // Without d_type the start is refused (probe.ts).
      ['Supports d_type', 'true'],
      ['Using metacopy', 'false'],
      ['Native Overlay Diff', 'true'],
      ['userxattr', String(isInUserNamespace())],
    ];
  }

  recover(): Promise<string[]> {
    return this.mountedIds();
  }

  protected prepare(directory: string, options: Readonly<Record<string, string>>): void {
    const limitBytes = this.#sizes.bytesFor(options);
    if (limitBytes !== undefined) this.#sizes.apply(directory, limitBytes);
  }

  async mount(id: string, below: readonly string[], isBrief: boolean): Promise<void> {
    const { diff, work, merged } = this.paths(id);
    // overlayfs wants something below: without anything else the layer's own empty mount point does.
    const lower = below.length === 0 ? [merged] : below;
    const last = this.#options(isBrief, this.#labelOf(id));
    const options = `lowerdir=${lower.join(':')},upperdir=${diff},workdir=${work}`;
    const isPlain = Buffer.byteLength(options + last) <= MAX_MOUNT_OPTIONS_BYTES && !/[:,\\]/.test(this.layout.root);
    const mount = (data: string): Promise<void> =>
      this.#sizes.whileMounting(this.layout.container(id), () => this.#overlay(data, merged));
    if (isPlain) return mount(options + last);
    const short = (directories: readonly string[]): string => this.short(directories, 'self');
    return mount(`lowerdir=${short(lower)},upperdir=${short([diff])},workdir=${short([work])}${last}`);
  }

  async unmount(id: string): Promise<void> {
    await detachMount(this.root(id));
  }

  async mountImage(below: readonly string[], at: string, label?: string): Promise<void> {
    // overlayfs wants two read-only directories. An empty one adds nothing. It has to exist as long as the mount: if it
    // were removed, the root of the mount could not be listed any more.
    const lower = this.short([...below, join(this.layout.root, EMPTY)], 'self');
    await this.#overlay(`lowerdir=${lower}${this.#options(false, label)}`, at);
  }

  readonly mapped: MappedMounts = {
    own: async (directory, maps) => {
      const diff = join(directory, DIFFERENCE);
      const { uid, gid } = hostOwner(maps, await lstat(diff));
      await chown(diff, uid, gid);
    },
    mount: (id, below, maps, isBrief) => {
      const { diff, work, merged } = this.paths(id);
      const { root } = this.layout;
      const upper = { diff: relative(root, diff), work: relative(root, work) };
      // overlayfs wants something below, as in `mount`.
      const lower = below.length === 0 ? [merged] : below;
      const options = this.#options(isBrief, this.#labelOf(id));
      return this.#sizes.whileMounting(this.layout.container(id), () =>
        this.#mountMapped({ lower, upper, at: merged, options, maps }),
      );
    },
    mountImage: (below, at, maps, label) => {
      const lower = [...below, join(this.layout.root, EMPTY)];
      return this.#mountMapped({ lower, upper: undefined, at, options: this.#options(false, label), maps });
    },
  };

  #options(isBrief: boolean, label: string | undefined): string {
    const { always, brief } = this.#mountOptions;
    return (isBrief ? always + brief : always) + contextOption(label);
  }

  async #mountMapped({ lower, upper, at, options, maps }: MappedMount): Promise<void> {
    const { root, layers } = this.layout;
    const input = {
      root,
      lower: lower.map((path) => relative(root, path)),
      ...(upper ? { upper } : {}),
      place: join(root, EMPTY),
      base: relative(root, layers),
      options,
      at,
    };
    try {
      await withUserNamespace(maps, (usernsFd) => this.#workers.run('overlay-mount-mapped', { ...input, usernsFd }));
    } catch (error) {
      throw unavailable(`mounting the root file system for users of its own: ${messageOf(error)}`, { cause: error });
    }
  }

  override movableDifference(directory: string): string | undefined {
    // The files of one with a size would go on counting.
    return this.#sizes.isLimited(directory) ? undefined : super.movableDifference(directory);
  }

  growingDifference(directory: string): string | undefined {
    // The kernel asks the upper directory for a name when it is first looked up.
    return this.movableDifference(directory);
  }

  async #overlay(data: string, at: string): Promise<void> {
    if (Buffer.byteLength(data) > MAX_MOUNT_OPTIONS_BYTES)
      throw invalid('the image has too many layers to be mounted', { code: 'LAYER_DEPTH' });
    try {
      await mountFileSystem('overlay', at, 'overlay', data);
    } catch (error) {
      throw internal('mounting the root file system', { cause: error });
    }
  }
}

/** The kernel takes what is in quotes as one value, though categories have commas. */
function contextOption(label: string | undefined): string {
  return label === undefined ? '' : `,context="${label}"`;
}
