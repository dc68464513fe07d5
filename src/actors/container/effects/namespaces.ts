/** The namespaces of a container that starts: its own network namespace, and those of others that it joins. */
import { conflict, notFound } from '../../../errors/engine-error.js';
import { ownsSandbox } from '../../../runtime/namespaces.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import type { Undo } from '../life/undo.js';
import { sharedMemoryPath } from '../mounts/shared-memory.js';
import { sharedUserns, usernsMaps } from '../mounts/userns.js';
import { optional } from './tools.js';

/**
 * Returns the paths of other containers' namespaces, through their init processes. A container that joins an IPC
 * namespace also gets its /dev/shm.
 */
export function sharedNamespaces(
  deps: ContainerDeps,
  record: ContainerRecord,
): { joins: Partial<Record<'ipc' | 'pid' | 'user', string>>; shmPath?: string } {
  const { IpcMode, PidMode } = record.hostConfig;
  const donor = (mode: string, kind: string): ContainerRecord =>
    runningDonor(deps, mode, ({ id }) => `failed to join ${kind} namespace: container ${id} is not running`);
  const joins: Partial<Record<'ipc' | 'pid' | 'user', string>> = optional('user', sharedUserns(deps, record, donor));
  for (const [kind, mode] of [
    ['ipc', IpcMode],
    ['pid', PidMode],
  ] as const) {
    if (mode.startsWith('container:')) joins[kind] = `/proc/${donor(mode, kind.toUpperCase()).state.pid}/ns/${kind}`;
  }
  const shmPath = sharedMemoryPath(deps, record, (mode) => donor(mode, 'IPC'));
  return { joins, ...optional('shmPath', shmPath) };
}

/**
 * Returns the container whose namespace another one joins. @throws EngineError not-found; conflict with the text that
 * `refusal` makes unless it runs.
 */
function runningDonor(deps: ContainerDeps, mode: string, refusal: (donor: ContainerRecord) => string): ContainerRecord {
  const id = mode.slice('container:'.length);
  const donor = deps.find(id);
  if (!donor) throw notFound(`No such container: ${id}`);
  if (donor.state.pid === 0) throw conflict(refusal(donor));
  return donor;
}

function noNetwork({ name, state }: ContainerRecord): string {
  const stopped = `container ${name.slice(1)} is ${state.status}`;
  return `cannot join network namespace of a non running container: ${stopped}`;
}

/**
 * Returns the path of the network namespace that a running container uses, its own or another one's; undefined for the
 * host's.
 */
function sandboxOf(deps: ContainerDeps, record: ContainerRecord): string | undefined {
  if (ownsSandbox(record)) return deps.network.sandboxPath(record.id);
  const { NetworkMode: mode } = record.hostConfig;
  return mode === 'host' ? undefined : sandboxOf(deps, runningDonor(deps, mode, noNetwork));
}

/** Makes the network namespace of a container that has one of its own; undefined when the runtime makes it. */
export async function openSandbox(
  deps: ContainerDeps,
  record: ContainerRecord,
  undo: Undo,
): Promise<string | undefined> {
  if (!ownsSandbox(record)) return sandboxOf(deps, record);
  // The network namespace must belong to the user namespace, which only the runtime makes.
  if (usernsMaps(deps, record)) return undefined;
  const path = await deps.network.createSandbox(record.id);
  undo.add('network namespace', () => deps.network.removeSandbox(record.id));
  return path;
}

/** Takes over the network namespace that the runtime has made. */
export async function keepSandbox({ network }: ContainerDeps, id: string, pid: number, undo: Undo): Promise<void> {
  await network.createSandbox(id, pid);
  undo.add('network namespace', () => network.removeSandbox(id));
}
