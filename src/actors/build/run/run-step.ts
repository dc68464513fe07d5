/**
 * RUN of a build by BuildKit's door: a container that nobody else sees. Nothing of it stays but the files that it has
 * changed.
 */
import { randomBytes } from 'node:crypto';
import type { RunInstruction } from '../../../build/dockerfile/ast.js';
import { findPlainStubs, type FindStubsInput } from '../../../build/files/mount-stubs.js';
import { cancelled, EngineError } from '../../../errors/engine-error.js';
import type { BuildRequest } from '../../../ports/build.js';
import type { MountPoint } from '../../../ports/container.js';
import type { SpecBuilder } from '../../../ports/runtime.js';
import type { LayerInfo, LayerStore } from '../../../ports/storage.js';
import type { TaskService } from '../../../ports/supervisor.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import { allDone, Undo } from '../../container/life/undo.js';
import { hideRoot, showRoot } from '../../container/mounts/root-place.js';
import type { StageState } from '../stage-state.js';
import type { StepLayers } from '../step-layers.js';
import { requireEntitled, type StepNetwork, stepNetwork } from './entitlements.js';
import { withHiddenEnvironment } from './hidden-environment.js';
import type { KnownTree, TreeDeps } from './mount-trees.js';
import { stepConfig, stepHostConfig, stepHostname } from './step-container.js';
import { stepEnvironment } from './step-environment.js';
import { bindPoint, type MountDeps, StepMounts } from './step-mounts.js';
import type { StepSandbox } from './step-network.js';
import type { SharedShim } from './shared-shim.js';
import type { StepOutput } from './step-output.js';
import type { StepPlace } from './step-place.js';
import { runProcess } from './step-process.js';
import type { RoomDeps, StepRoom, StepRooms } from './step-room.js';

export interface StepRunDeps extends MountDeps, TreeDeps, RoomDeps {
  readonly layers: LayerStore;
  readonly tasks: TaskService;
  readonly specs: SpecBuilder;
  /** Directory in which root file systems are shown to runtimes that act as the users of steps. */
  readonly rootsRoot: string;
}

export interface RunStep {
  readonly instruction: Pick<RunInstruction, 'mounts' | 'network' | 'security' | 'devices'>;
  /** The stage before the step. */
  readonly state: Pick<StageState, 'config' | 'topLayer'>;
  /** The command line with the shell of the stage. */
  readonly argv: readonly string[];
  /** A program of the Dockerfile, which is mounted read-only. */
  readonly program: { readonly path: string; readonly content: string } | undefined;
  /** `NAME=value` of ENV and ARG. */
  readonly env: readonly string[];
  readonly request: Pick<BuildRequest, 'run' | 'secret' | 'sshAgent' | 'buildArgs'>;
  /** Those of the build, which holds the new layer. */
  readonly layers: StepLayers;
  readonly shim: SharedShim;
  readonly rooms: StepRooms;
  /** Returns the files that the mount with this index is from; undefined: from none. */
  readonly treeOf: (mount: number) => Promise<KnownTree | undefined>;
  /** Resolves when more output may come. */
  readonly output: StepOutput;
  /** An empty directory at this path becomes the layer; absent: all that is changed does. */
  readonly collects?: string;
}

/**
 * Runs the process and returns the layer with what it has changed.
 * @throws EngineError with the code STEP_REFUSED when it cannot begin; else what is said about a process
 * that has failed, `exit code: 7` with the detail `exitCode`; cancelled.
 */
export async function runStep(deps: StepRunDeps, step: RunStep, signal: AbortSignal): Promise<LayerInfo> {
  const { instruction, request, collects } = step;
  requireEntitled(instruction, request.run);
  const network = stepNetwork(instruction, request.run);
  const undo = new Undo(deps.log);
  try {
    const room = await step.rooms.take(network);
    const { id } = room;
    undo.add('room of a step', () => room.close());
    undo.add('files of a step', () => deps.layers.removeWritable(id));
    const collected = collects === undefined ? undefined : await collection(deps, collects, undo);
    const { exitCode, rootfs, stubs } = await perform(deps, step, { room, network, collected }, undo, signal);
    if (exitCode !== 0) throw new EngineError('internal', `exit code: ${exitCode}`, { details: { exitCode } });
    if (collected) return await step.layers.seal(collected.id);
    if (stubs.length > 0) await deps.pool.run('build-remove-stubs', { rootfs, paths: stubs });
    return await step.layers.seal(id);
  } catch (error) {
    throw signal.aborted ? cancelled('context canceled') : error;
  } finally {
    step.layers.removeLater(undo.run());
  }
}

/** A directory beside the files of the step, of which a layer is made. */
interface Collection {
  readonly id: string;
  readonly point: MountPoint;
}

async function collection({ layers }: StepRunDeps, at: string, undo: Undo): Promise<Collection> {
  const id = randomBytes(32).toString('hex');
  undo.add('collected files of a step', () => layers.removeWritable(id));
  await layers.createBrief(id, undefined, { isBare: true });
  return { id, point: bindPoint(await layers.mount(id), at, true) };
}

interface Performed {
  readonly exitCode: number;
  readonly rootfs: string;
  /** Places of mounts that were not there before. */
  readonly stubs: readonly string[];
}

interface StepSetting {
  readonly room: StepRoom;
  readonly network: StepNetwork;
  readonly collected: Collection | undefined;
}

async function perform(
  deps: StepRunDeps,
  step: RunStep,
  { room, network, collected }: StepSetting,
  undo: Undo,
  signal: AbortSignal,
): Promise<Performed> {
  const { instruction, request, state } = step;
  const defaults = deps.stepDefaults();
  const { id, place, sandbox, stdio } = room;
  const mounts = new StepMounts(deps, place, undo, signal);
  const [{ rootfs, shown }, program] = await allDone([
    mountFiles(deps, id, state.topLayer, undo),
    programFile(deps, step, place),
    openMounts(mounts, step),
  ]);
  signal.throwIfAborted();
  const asked = [...mounts.points, ...(collected ? [collected.point] : [])];
  const points = [...room.given, ...program, ...asked];
  const taken = new Set(asked.map(({ Destination }) => Destination));
  const { buildArgs } = request;
  const hostConfig = stepHostConfig(request.run, instruction, network, defaults);
  const [stubs, { spec }] = await allDone([
    stubsIn(deps, { rootfs, destinations: points.flatMap(stubOf) }),
    deps.specs.build({
      id,
      name: id,
      argv: step.argv,
      config: stepConfig(state.config, stepHostname(request)),
      hostConfig,
      environment: stepEnvironment({ env: step.env, buildArgs, sshSocket: mounts.sshSocket }),
      rootfs: shown,
      netnsPath: sandbox.path,
      files: { hostname: '', hosts: '', resolvConf: '' },
      mounts: points.filter((point) => asked.includes(point) || !taken.has(point.Destination)),
      cgroupsPath: defaults.cgroupsPath(id, request.run.cgroupParent),
      userns: deps.userMaps,
      appArmorProfile: deps.specs.appArmorProfile(hostConfig),
    }),
  ]);
  const runtime = await withHiddenEnvironment(defaults.runtime, spec, mounts.secretEnv, place);
  signal.throwIfAborted();
  const ioOwner = deps.userMaps && rootOwner(deps.userMaps);
  const exitCode = await runProcess(
    deps.tasks,
    {
      task: { id, spec, runtime, labels: {}, ...(ioOwner && { ioOwner }) },
      shim: step.shim,
      isAlone: runtime !== defaults.runtime,
      stdio,
      output: step.output,
      join: (created) => joinAndHide(deps, sandbox, { id, created, undo }),
      started: () => step.rooms.prepare(network),
    },
    undo,
    signal,
  );
  return { exitCode, rootfs, stubs };
}

/** Returns where the files are, and the path of them for the runtime. */
async function mountFiles(
  { layers, rootsRoot, shownMaps }: StepRunDeps,
  id: string,
  parent: StageState['topLayer'],
  undo: Undo,
): Promise<{ readonly rootfs: string; readonly shown: string }> {
  await layers.createBrief(id, parent, { isBare: true, maps: shownMaps });
  const rootfs = await layers.mount(id);
  return { rootfs, shown: await showRoot({ layers, rootsRoot }, id, rootfs, undo) };
}

/** Joins the network while the runtime works, and takes away the files that only the runtime needs to see. */
async function joinAndHide(
  deps: StepRunDeps,
  sandbox: StepSandbox,
  {
    id,
    created,
    undo,
  }: { readonly id: string; readonly created: Promise<{ readonly pid: number }>; readonly undo: Undo },
): Promise<void> {
  await sandbox.join(created, undo);
  await created;
  await hideRoot(deps, id);
}

/** The program of the Dockerfile, if the step has one. */
async function programFile(
  { userMaps }: StepRunDeps,
  { program }: RunStep,
  place: StepPlace,
): Promise<readonly MountPoint[]> {
  if (program === undefined) return [];
  return [bindPoint(await place.file(program.content, 0o755, rootOwner(userMaps)), program.path, false)];
}

function openMounts(mounts: StepMounts, { instruction, state, argv, request, treeOf }: RunStep): Promise<void> {
  return mounts.open({
    mounts: instruction.mounts,
    workingDir: state.config.WorkingDir ?? '',
    request,
    command: argv.join(' '),
    treeOf,
  });
}

async function stubsIn({ pool }: StepRunDeps, input: FindStubsInput): Promise<string[]> {
  return (await findPlainStubs(input)) ?? pool.run('build-find-stubs', input);
}

/** The kernel's own file systems have places for mounts that are in no layer. */
function stubOf({ Destination }: MountPoint): string[] {
  return /^\/(?:dev|proc|sys)(?:\/|$)/.test(Destination) ? [] : [Destination];
}
