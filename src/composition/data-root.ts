/**
 * Finds the data of a daemon that remaps users. Where mounts can show files to containers as those of their users,
 * images and volumes are kept once for all, in the data root itself. Elsewhere, and where it is so from before, all is
 * in `<data-root>/<uid>.<gid>`, named after the host's id of the containers' root, with the owners that they have here.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { FixedConfig } from '../config/config.js';
import type { IdMaps } from '../ports/id-maps.js';
import type { Logger } from '../ports/logger.js';
import { driverCandidates, snapshotterOf } from '../storage/drivers/selection.js';
import { whyNotShown } from '../sys/mount/shown-owners.js';
import { checkPassage, isPassable, letPass } from '../sys/users/id-access.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { makeDirectories } from '../sys/files/make-directories.js';
import type { Roots } from './roots.js';

/** A data root, and how the users of containers are mapped in it. */
export type MappedRoot = Pick<Roots, 'dataRoot' | 'idMaps' | 'shownMaps'>;

/** The settings on which the choice depends. */
type Wanted = Pick<FixedConfig, 'storageDriver'> & { readonly features: Readonly<Record<string, boolean>> };

/**
 * Returns the data root for these maps, and lets the root user of containers pass through it when it holds their files;
 * without maps it is `dataRoot` itself.
 * @throws EngineError invalid when that user cannot pass through a directory above it, or above the exec-root.
 */
export async function openDataRoot(
  { dataRoot, execRoot }: Pick<Roots, 'dataRoot' | 'execRoot'>,
  idMaps: IdMaps | undefined,
  wanted: Wanted,
  log: Logger,
): Promise<MappedRoot> {
  const found = foundDataRoot(dataRoot, idMaps);
  if (!idMaps) return found;
  const owner = rootOwner(idMaps);
  const separate = remappedDataRoot(dataRoot, idMaps);
  if (found.shownMaps) {
    const reason = await whyApart(dataRoot, idMaps, wanted);
    if (reason === undefined) {
      await checkPassage(join(execRoot, 'roots'), owner, 'exec-root');
      if (await isPassable(dataRoot, owner))
        log.warn(
          { dataRoot },
          'userns-remap: users of containers that come to the host may pass through the data root, where programs of ' +
            'images and volumes belong to its root: chown root:root and chmod 0710',
        );
      return found;
    }
    log.warn(
      { dataRoot: separate },
      `userns-remap: images and containers are kept apart, with other owners: ${reason}`,
    );
  }
  await makeDirectories(separate, { mode: 0o710 });
  for (const directory of [dataRoot, separate]) await letPass(directory, owner);
  await checkPassage(separate, owner);
  return { dataRoot: separate, idMaps, shownMaps: undefined };
}

/** Returns where data for these maps are, as far as the disk tells. */
export function foundDataRoot(dataRoot: string, idMaps: IdMaps | undefined): MappedRoot {
  const separate = idMaps && remappedDataRoot(dataRoot, idMaps);
  return separate !== undefined && existsSync(separate)
    ? { dataRoot: separate, idMaps, shownMaps: undefined }
    : { dataRoot, idMaps: undefined, shownMaps: idMaps };
}

/** Returns why files cannot be kept once for all users; undefined when they can. */
async function whyApart(dataRoot: string, idMaps: IdMaps, wanted: Wanted): Promise<string | undefined> {
  if (snapshotterOf(wanted.features, wanted.storageDriver) !== undefined)
    return 'snapshots of the supervisor cannot be shown to other users';
  const [driver] = driverCandidates(wanted.storageDriver, dataRoot);
  if (driver?.showsOwners !== true)
    return `the storage driver ${driver?.name ?? wanted.storageDriver} cannot show files to other users; overlay2 can`;
  return whyNotShown(dataRoot, idMaps);
}

function remappedDataRoot(dataRoot: string, idMaps: IdMaps): string {
  const { uid, gid } = rootOwner(idMaps);
  return join(dataRoot, `${uid}.${gid}`);
}
