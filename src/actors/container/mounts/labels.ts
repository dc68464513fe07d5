/** SELinux labels of what a container is given from the host. Does nothing where containers have no labels. */
import { realpath } from 'node:fs/promises';
import { EngineError, invalid, isEngineError, messageOf } from '../../../errors/engine-error.js';
import type { MountPoint } from '../../../ports/container.js';
import { sharedLabel } from '../../../runtime/selinux/selinux.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps, ContainerFiles } from '../deps.js';

type Deps = Pick<ContainerDeps, 'relabel'>;

/**
 * Relabels the source of a mount whose mode has `z` (every container may use it) or `Z` (this one alone). A volume
 * whose mode has neither is relabelled for every container.
 * @throws EngineError invalid `error setting label on mount source '/etc': …`.
 */
export async function labelSource(deps: Deps, record: ContainerRecord, point: MountPoint): Promise<void> {
  const modes = point.Mode.split(',');
  const isShared = modes.includes('z') || (point.Type === 'volume' && !modes.includes('Z'));
  if (!isShared && !modes.includes('Z')) return;
  await label(deps, record, point.Source, isShared);
}

/** Relabels the files that the daemon keeps for a container. Those of another container are shared with it. */
export async function labelFiles(deps: Deps, record: ContainerRecord, files: ContainerFiles): Promise<void> {
  const isShared = record.hostConfig.NetworkMode.startsWith('container:');
  for (const path of Object.values(files)) await label(deps, record, path, isShared);
}

async function label({ relabel }: Deps, { labels }: ContainerRecord, source: string, isShared: boolean): Promise<void> {
  if (!relabel || !labels) return;
  try {
    await relabel(await realpath(source), isShared ? sharedLabel(labels.mountLabel) : labels.mountLabel);
  } catch (error) {
    const message = `error setting label on mount source '${source}': ${messageOf(error)}`;
    if (isEngineError(error)) throw new EngineError(error.kind, message, { cause: error });
    throw invalid(message, { cause: error });
  }
}
