/**
 * A container that shares its /dev/shm has it as a file system of its own on the host, because what is mounted in one
 * container cannot be bound into another one.
 */
import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../../../errors/engine-error.js';
import { detachMount, mountFileSystem } from '../../../sys/mount/mount.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import { filesRoot } from './userns.js';

// linux/mount.h
const MS_NOSUID = 2;
const MS_NODEV = 4;
const MS_NOEXEC = 8;

type Deps = Pick<ContainerDeps, 'shmRoot' | 'idMaps' | 'layers' | 'relabel'>;

/** Mounts the shared memory of a container that starts and may be a donor. */
export async function openSharedMemory(deps: Deps, record: ContainerRecord): Promise<void> {
  const {
    id,
    hostConfig: { IpcMode, ShmSize },
  } = record;
  if (IpcMode !== 'shareable') return;
  // A start that a crash cut short may have left a mount.
  await closeSharedMemory(deps, record);
  const dir = join(deps.shmRoot, id);
  await makeDirectories(dir, { mode: 0o700 });
  const { uid, gid } = filesRoot(deps, record);
  const context = deps.relabel && record.labels ? `,context="${record.labels.mountLabel}"` : '';
  await mountFileSystem(
    'shm',
    dir,
    'tmpfs',
    `mode=1777,size=${ShmSize},uid=${uid},gid=${gid}${context}`,
    MS_NOSUID | MS_NODEV | MS_NOEXEC,
  );
}

/** Unmounts the shared memory of a container. Containers that share it keep it until they end. Idempotent. */
export async function closeSharedMemory(
  { shmRoot }: Pick<ContainerDeps, 'shmRoot'>,
  { id, hostConfig: { IpcMode } }: ContainerRecord,
): Promise<void> {
  if (IpcMode === 'shareable' && (await detachMount(join(shmRoot, id)))) await rmdir(join(shmRoot, id));
}

/**
 * Returns the directory that becomes /dev/shm of a container; undefined for a file system that nobody else sees.
 * @param donorOf gives the container that a mode names.
 * @throws EngineError invalid when the donor shares nothing.
 */
export function sharedMemoryPath(
  deps: Deps,
  { id, hostConfig: { IpcMode: mode } }: ContainerRecord,
  donorOf: (mode: string) => ContainerRecord,
): string | undefined {
  if (mode === 'host') return '/dev/shm';
  if (mode === 'shareable') return join(deps.shmRoot, id);
  if (!mode.startsWith('container:')) return undefined;
  const donor = donorOf(mode);
  const path = sharedMemoryPath(deps, donor, donorOf);
  if (path === undefined)
    throw invalid(
      `cannot join IPC of container ${donor.id}: non-shareable IPC (hint: ` +
        'use IpcMode:shareable for the donor container)',
    );
  return path;
}
