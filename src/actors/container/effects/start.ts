/** The start of a container: what its task needs is opened at the same time, then the task is made and started. */
import type { SpecInput } from '../../../ports/runtime.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import type { Pace } from '../../kit/pace.js';
import { withState, type ContainerRecord } from '../container.record.js';
import { effectiveHostConfig } from '../create/effective-host-config.js';
import type { ContainerDeps, WrittenFiles } from '../deps.js';
import { networkingFailed, startError } from '../life/start-error.js';
import { allDone, Undo } from '../life/undo.js';
import { labelFiles } from '../mounts/labels.js';
import { hideRoot, showRoot } from '../mounts/root-place.js';
import { closeSharedMemory, openSharedMemory } from '../mounts/shared-memory.js';
import { usernsMaps } from '../mounts/userns.js';
import { VolumeUse } from '../mounts/volume-use.js';
import { linkedContainers, linkEnvironment } from '../network/legacy-links.js';
import { joinNetworks } from '../network/networks.js';
import { now } from '../streams/timestamps.js';
import { keepSandbox, openSandbox, sharedNamespaces } from './namespaces.js';
import { optional, type EffectTools } from './tools.js';

/** Brings the task up; a failure takes everything back and says what clients are to see. */
export async function startContainer(
  { deps, ios, departures }: EffectTools,
  before: ContainerRecord,
  signal: AbortSignal,
  pace: Pace,
): Promise<ContainerRecord> {
  const { records, tasks } = deps;
  const undo = new Undo(deps.log);
  const id = before.id;
  const volumes = new VolumeUse(deps, before);
  const userns = usernsMaps(deps, before);
  await departures.over(id);
  try {
    const confined = { ...before, appArmorProfile: deps.specs.appArmorProfile(effectiveHostConfig(before)) };
    const starting = withState(confined, { status: 'starting', startedAt: now(), error: '', oomKilled: false });
    const saved = keepsRunning(starting) ? records.save(starting) : records.saveForRun(starting);
    // This marks a failure as handled; it is thrown where `saved` is awaited below.
    saved.catch(() => undefined);
    undo.add('volumes', () => volumes.close());
    undo.add('shared memory', () => closeSharedMemory(deps, starting));
    const [rootfs, netnsPath, io, written, mounts] = await allDone([
      mountRoot(deps, id, undo),
      openSandbox(deps, starting, undo),
      ios.get(id).open(starting, undo),
      writeLabelledFiles(deps, starting),
      pace.unlimited(volumes.open()),
      openSharedMemory(deps, starting),
    ]);
    const { files } = written;
    const { spec } = await deps.specs.build(specInput(deps, starting, { rootfs, netnsPath, files, mounts, userns }));
    signal.throwIfAborted();
    const creating = tasks.create({
      id,
      spec,
      runtime: deps.runtimeFor(starting),
      stdio: io.paths,
      labels: {},
      ...optional('ioOwner', userns && rootOwner(userns)),
    });
    undo.add('task', () => tasks.delete(id));
    const ownSandbox =
      userns && netnsPath === undefined ? creating.then(({ pid }) => keepSandbox(deps, id, pid, undo)) : undefined;
    const [{ pid }, attached] = await allDone([creating, join(deps, { starting, undo, written, ready: ownSandbox })]);
    await Promise.all([volumes.freePlaces(), hideRoot(deps, id)]);
    await io.started();
    await saved;
    signal.throwIfAborted();
    await tasks.start(id);
    signal.throwIfAborted();
    const running = withState(
      { ...attached, mounts: volumes.points, logPath: io.logPath },
      { status: 'running', pid, exitCode: 0 },
    );
    void records
      .saveForRunFirst(running)
      .catch((error: unknown) => deps.log.error({ err: error, container: id }, 'record not saved'));
    return running;
  } catch (error) {
    await undo.run();
    throw startError(error);
  }
}

/** After a power cut a container with a policy is started again, also when that came with the reply. */
const keepsRunning = ({ hostConfig: { RestartPolicy } }: ContainerRecord): boolean =>
  RestartPolicy.Name !== '' && RestartPolicy.Name !== 'no';

async function mountRoot(deps: ContainerDeps, id: string, undo: Undo): Promise<string> {
  const { layers } = deps;
  const rootfs = await layers.mount(id);
  undo.add('root filesystem', () => layers.unmount(id));
  return showRoot(deps, id, rootfs, undo);
}

async function writeLabelledFiles(deps: ContainerDeps, starting: ContainerRecord): Promise<WrittenFiles> {
  const written = await deps.writeFiles(starting).catch(networkingFailed);
  await labelFiles(deps, starting, written.files);
  return written;
}

/** The parts of the specification that are made for this start. */
type Opened = Pick<SpecInput, 'rootfs' | 'netnsPath' | 'files' | 'mounts' | 'userns'>;

function specInput(deps: ContainerDeps, starting: ContainerRecord, opened: Opened): SpecInput {
  const linked = linkedContainers(starting, (other) => deps.find(other));
  return {
    id: starting.id,
    name: starting.name.slice(1),
    argv: [starting.path, ...starting.args],
    config: {
      ...starting.config,
      Env: [...linkEnvironment(starting, linked), ...(starting.config.Env ?? [])],
    },
    hostConfig: effectiveHostConfig(starting),
    appArmorProfile: starting.appArmorProfile,
    ...optional('labels', deps.relabel && starting.labels),
    ...opened,
    cgroupsPath: deps.cgroupsPathFor(starting),
    ...optional('initPath', deps.initPathFor(starting)),
    ...sharedNamespaces(deps, starting),
  };
}

interface Joining {
  readonly starting: ContainerRecord;
  readonly undo: Undo;
  readonly written: WrittenFiles;
  /** The network namespace that the runtime makes; undefined: the container has one already. */
  readonly ready: Promise<void> | undefined;
}

/**
 * Joins the networks while the runtime works, and saves the record with them, so that after a kill it is known what
 * the container got. A power cut takes the networks away, too.
 */
async function join(deps: ContainerDeps, { starting, undo, written, ready }: Joining): Promise<ContainerRecord> {
  if (ready) await ready;
  const joined = await deps.counted('allocate', () => joinNetworks(deps, starting, undo).catch(networkingFailed));
  if (Object.keys(joined.networks).length > 0)
    await Promise.all([deps.writeFiles(joined, written), deps.records.saveForRun(joined)]);
  return joined;
}
