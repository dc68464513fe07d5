/**
 * Finds or makes the dataset of the store, which has those of layers and containers below it:
 * `<zfs.fsname>/engined-<random>`. Its name is in a link in the directory of the store.
 */
import { readdirSync, statSync } from 'node:fs';
import { rename, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type EngineError, invalid, isEngineError, unavailable } from '../../../errors/engine-error.js';
import { randomName } from '../../random-name.js';
import type { Layout } from '../../layers/layout.js';
import type { ZfsHost } from './host.js';
import { DATASET_LINK, datasetIn, ROOT_PROPERTY, STORE_PROPERTY } from './places.js';
import { checkPool } from './pool.js';
import { propertiesOf } from './properties.js';

/** Properties that a root file system needs, whatever those of the dataset above are. Those below inherit them. */
const PROPERTIES = [
  // Nothing but the daemon mounts it.
  'mountpoint=legacy',
  'canmount=on',
  // Attributes of files, as file capabilities and lists of rights, as other file systems of Linux have them.
  'xattr=sa',
  'acltype=posixacl',
  'snapdir=hidden',
  // Names in images are any bytes.
  'casesensitivity=sensitive',
  'normalization=none',
  'utf8only=off',
];

export interface Parent {
  readonly name: string;
  /** The value of its property. */
  readonly store: string;
  /** Each text names something that was mended. */
  readonly repaired: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * @param above is the dataset that has it directly below.
 * @throws EngineError unavailable, invalid when it cannot be used, with the remedy.
 */
export async function openParent(host: ZfsHost, layout: Layout, above: string): Promise<Parent> {
  const warnings = await checkPool(host, above);
  await checkAbove(host, above);
  const known = datasetIn(layout.root);
  if (known === undefined) return { ...(await make(host, layout, above)), warnings };
  const store = basename(known);
  const name = `${above}/${store}`;
  const properties = await propertiesOf(host, name, [STORE_PROPERTY, ROOT_PROPERTY, 'readonly']);
  if (properties?.get(STORE_PROPERTY) !== store) {
    if (!holdsDatasets(layout)) return { ...(await make(host, layout, above)), warnings };
    throw await missing(host, { name, store, was: known });
  }
  if (properties.get('readonly') === 'on') throw readOnly(name);
  await claim(host, layout, name, properties.get(ROOT_PROPERTY) ?? '');
  if (name === known) return { name, store, repaired: [], warnings };
  await link(layout, name);
  return { name, store, warnings, repaired: [`name of the dataset of layers: it was ${known}, now it is ${name}`] };
}

/** Returns the dataset that a path is on, or the named one. @throws EngineError invalid for an impossible name. */
export function datasetAbove(host: ZfsHost, directory: string, named: string | undefined): string {
  if (named !== undefined) {
    if (!/^[A-Za-z][\w.: -]*(?:\/[\w.:][\w.: -]*)*$/.test(named) || named.length > 200)
      throw invalid(`zfs.fsname: ${JSON.stringify(named)} is no name of a dataset, such as pool/engine`, {
        code: 'STORAGE_OPTION',
      });
    return named;
  }
  const { type, source } = host.fileSystemOf(directory);
  if (type !== 'zfs')
    throw unavailable(
      `storage driver zfs: prerequisites for driver not satisfied (wrong filesystem?): ${directory} is on ${type}, ` +
        'not on ZFS; name a dataset with --storage-opt zfs.fsname=, another data-root, or another storage-driver',
      { code: 'ZFS_UNSUPPORTED' },
    );
  return source;
}

async function make(
  host: ZfsHost,
  layout: Layout,
  above: string,
): Promise<{ readonly name: string; readonly store: string; readonly repaired: readonly string[] }> {
  const store = `engined-${randomName()}`;
  const name = `${above}/${store}`;
  await link(layout, name);
  const own = [`${STORE_PROPERTY}=${store}`, `${ROOT_PROPERTY}=${rootOf(layout)}`];
  const properties = [...PROPERTIES, ...own].flatMap((property) => ['-o', property]);
  try {
    await host.zfs('create', ...properties, name);
  } catch (error) {
    if (!isEngineError(error) || error.code !== 'ENOSPC') throw error;
    throw unavailable(
      `storage driver zfs: the pool of ${above} is full: destroy something in it, add devices (zpool add), or raise ` +
        `the quotas of ${above} and what is above it`,
      { code: 'ZFS_UNSUPPORTED', cause: error },
    );
  }
  return { name, store, repaired: [] };
}

const rootOf = ({ root }: Layout): string => `${statSync(root).ino} ${root}`;

/**
 * Writes down the directory of the store, which may have been renamed or restored.
 * @throws EngineError unavailable when it is another one altogether.
 */
async function claim(host: ZfsHost, layout: Layout, name: string, before: string): Promise<void> {
  const now = rootOf(layout);
  if (now === before) return;
  const [was, is] = [before, now].map((text) => text.split(/ (.*)/s, 2));
  const isOther = before !== '-' && was?.[0] !== is?.[0] && was?.[1] !== is?.[1];
  if (isOther)
    throw unavailable(
      `storage driver zfs: the dataset ${name} belongs to the data root of ${before}, of which this one is a copy: ` +
        `if that is not used any more, zfs inherit ${ROOT_PROPERTY} ${name}`,
      { code: 'ZFS_UNSUPPORTED' },
    );
  await host.zfs('set', `${ROOT_PROPERTY}=${now}`, name);
}

/** Replaces the link at once. */
async function link(layout: Layout, name: string): Promise<void> {
  const fresh = layout.newStaging();
  await symlink(name, fresh);
  await rename(fresh, join(layout.root, DATASET_LINK));
  layout.leaveStaging(fresh);
}

/** Tells whether anything of the store has a dataset. */
function holdsDatasets({ layers, writable }: Layout): boolean {
  return [layers, writable].some((shelf) =>
    readdirSync(shelf).some((entry) => datasetIn(join(shelf, entry)) !== undefined),
  );
}

/** @throws EngineError unavailable when the dataset is not there or cannot have others below it. */
async function checkAbove(host: ZfsHost, above: string): Promise<void> {
  const properties = await propertiesOf(host, above, ['type', 'readonly', 'keystatus']);
  if (!properties)
    throw unavailable(
      `storage driver zfs: there is no dataset ${above}: make it (zfs create ${above}), or name another one with ` +
        '--storage-opt zfs.fsname=',
      { code: 'ZFS_UNSUPPORTED' },
    );
  if (properties.get('type') !== 'filesystem')
    throw unavailable(
      `storage driver zfs: ${above} is a ${properties.get('type')}, not a file system: name another one`,
      {
        code: 'ZFS_UNSUPPORTED',
      },
    );
  if (properties.get('readonly') === 'on') throw readOnly(above);
  if (properties.get('keystatus') === 'unavailable')
    throw unavailable(`storage driver zfs: the key of ${above} is not loaded: zfs load-key ${above}`, {
      code: 'ZFS_UNSUPPORTED',
    });
}

function readOnly(name: string): EngineError {
  return unavailable(`storage driver zfs: the dataset ${name} is read-only: zfs set readonly=off ${name}`, {
    code: 'ZFS_UNSUPPORTED',
  });
}

/** The error for a dataset of a store with layers that is not where it was. */
async function missing(
  host: ZfsHost,
  { name, store, was }: { readonly name: string; readonly store: string; readonly was: string },
): Promise<EngineError> {
  const all = await host.zfs('get', '-Hp', '-t', 'filesystem', '-s', 'local', '-o', 'name,value', STORE_PROPERTY);
  const now = all
    .split('\n')
    .map((line) => line.split('\t'))
    .find(([, value]) => value === store)?.[0];
  if (now === undefined)
    return unavailable(
      `storage driver zfs: the dataset ${was}, which has all layers and containers, is gone: import its pool ` +
        '(zpool import), or choose another data-root',
      { code: 'ZFS_UNSUPPORTED' },
    );
  const remedy =
    basename(now) === store
      ? `start the daemon with --storage-opt zfs.fsname=${dirname(now)}`
      : `rename it back (zfs rename ${now} ${name})`;
  return unavailable(
    `storage driver zfs: the dataset ${name}, which has all layers and containers, is ${now} now: ${remedy}`,
    { code: 'ZFS_UNSUPPORTED' },
  );
}
