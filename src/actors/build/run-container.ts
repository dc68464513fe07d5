/** The container of a RUN: made, started and waited for as any other one. */
import { Writable } from 'node:stream';
import { cancelled } from '../../errors/engine-error.js';
import type { RunSettings } from '../../ports/build.js';
import type { ContainerConfig, HostConfig } from '../../ports/container.js';
import type { Digest } from '../../ports/storage.js';
import type { ContainerDirectory } from '../container/directory.js';
import type { ContainerIoRegistry } from '../container/streams/container-io.js';
import type { StageState } from './stage-state.js';

export interface RunDeps {
  readonly containers: ContainerDirectory;
  readonly ios: ContainerIoRegistry;
}

export interface ContainerOfStep {
  /** The image that the container is made from. */
  readonly image: Digest;
  readonly state: StageState;
  readonly argv: readonly string[];
  /** Variables besides those of the image. */
  readonly env?: readonly string[];
  readonly settings: RunSettings;
}

export interface RunCommand extends ContainerOfStep {
  /** Resolves when more output may come. */
  readonly output: (stream: 1 | 2, bytes: Buffer) => Promise<void>;
  readonly created: (id: string) => void;
}

/** Code of the error about a command that has ended with the detail `exitCode`. */
export const COMMAND_FAILED = 'COMMAND_FAILED';

/** Makes a container for a command, which is not started. Returns its ID. */
export async function createContainer(
  { containers }: Pick<RunDeps, 'containers'>,
  command: ContainerOfStep,
): Promise<string> {
  const { record } = await containers.create({
    name: undefined,
    platform: undefined,
    config: configOf(command),
    hostConfig: hostConfigOf(command.settings),
    keepsSubmountsWritable: false,
    endpoints: {},
    warnings: [],
  });
  return record.id;
}

/** Runs the command and returns the container, which has ended, with its exit code. The caller removes it. */
export async function runContainer(
  { containers, ios }: RunDeps,
  command: RunCommand,
  signal: AbortSignal,
): Promise<{ readonly id: string; readonly exitCode: number }> {
  const id = await createContainer({ containers }, command);
  command.created(id);
  const end = (): void => void containers.kill(id, 9).catch(() => undefined);
  try {
    signal.throwIfAborted();
    const outputs = ([1, 2] as const).map((stream) => follow(ios, id, stream, command.output));
    const exit = containers.wait(id, 'next-exit');
    exit.catch(() => undefined);
    await containers.start(id);
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const { exitCode } = await exit;
    await Promise.all(outputs);
    signal.throwIfAborted();
    return { id, exitCode };
  } catch (error) {
    await containers.remove(id, { force: true, volumes: true }).catch(() => undefined);
    throw signal.aborted ? cancelled('context canceled') : error;
  } finally {
    signal.removeEventListener('abort', end);
  }
}

/** Resolves when the last output of the run has been handed on. */
function follow(ios: ContainerIoRegistry, id: string, stream: 1 | 2, output: RunCommand['output']): Promise<void> {
  return new Promise((resolve) => {
    const sink = new Writable({
      write(chunk: Buffer, _encoding, done) {
        // A client that has gone takes nothing more, and its build is cancelled.
        output(stream, chunk).then(
          () => done(),
          () => done(),
        );
      },
    });
    sink.on('finish', resolve).on('close', resolve);
    ios.get(id).hub.subscribe({ stdout: stream === 1, stderr: stream === 2, multiplexed: false }, sink);
  });
}

function configOf({ image, state, argv, env = [], settings }: ContainerOfStep): ContainerConfig {
  const { config } = state;
  return {
    Hostname: settings.hostname,
    Domainname: '',
    User: config.User ?? '',
    AttachStdin: false,
    AttachStdout: true,
    AttachStderr: true,
    Tty: false,
    OpenStdin: false,
    StdinOnce: false,
    Env: [...env],
    Cmd: [...argv],
    Image: image,
    Volumes: null,
    WorkingDir: config.WorkingDir ?? '',
    Entrypoint: [''],
    OnBuild: null,
    Labels: {},
    Healthcheck: { Test: ['NONE'] },
  };
}

function hostConfigOf(settings: RunSettings): HostConfig {
  return {
    ...NOTHING_SAID,
    NetworkMode: settings.networkMode === 'sandbox' ? '' : settings.networkMode,
    ExtraHosts: settings.extraHosts.length > 0 ? [...settings.extraHosts] : null,
    ShmSize: settings.shmSize,
    Ulimits: settings.ulimits.length > 0 ? [...settings.ulimits] : null,
    CgroupParent: settings.cgroupParent,
    Memory: settings.memory,
    MemorySwap: settings.memorySwap,
    CpuShares: settings.cpuShares,
    CpuPeriod: settings.cpuPeriod,
    CpuQuota: settings.cpuQuota,
    CpusetCpus: settings.cpusetCpus,
    CpusetMems: settings.cpusetMems,
  };
}

/** A client that leaves everything to the daemon. */
export const NOTHING_SAID: HostConfig = {
  Binds: null,
  ContainerIDFile: '',
  LogConfig: { Type: 'none', Config: {} },
  NetworkMode: '',
  PortBindings: null,
  RestartPolicy: { Name: '', MaximumRetryCount: 0 },
  AutoRemove: false,
  VolumeDriver: '',
  VolumesFrom: null,
  ConsoleSize: [0, 0],
  CapAdd: null,
  CapDrop: null,
  CgroupnsMode: '',
  Dns: null,
  DnsOptions: null,
  DnsSearch: null,
  ExtraHosts: null,
  GroupAdd: null,
  IpcMode: '',
  Cgroup: '',
  Links: null,
  OomScoreAdj: 0,
  PidMode: '',
  Privileged: false,
  PublishAllPorts: false,
  ReadonlyRootfs: false,
  SecurityOpt: null,
  UTSMode: '',
  UsernsMode: '',
  ShmSize: 0,
  Runtime: '',
  Isolation: '',
  CpuShares: 0,
  Memory: 0,
  NanoCpus: 0,
  CgroupParent: '',
  BlkioWeight: 0,
  BlkioWeightDevice: null,
  BlkioDeviceReadBps: null,
  BlkioDeviceWriteBps: null,
  BlkioDeviceReadIOps: null,
  BlkioDeviceWriteIOps: null,
  CpuPeriod: 0,
  CpuQuota: 0,
  CpuRealtimePeriod: 0,
  CpuRealtimeRuntime: 0,
  CpusetCpus: '',
  CpusetMems: '',
  Devices: null,
  DeviceCgroupRules: null,
  DeviceRequests: null,
  MemoryReservation: 0,
  MemorySwap: 0,
  MemorySwappiness: null,
  OomKillDisable: null,
  PidsLimit: null,
  Ulimits: null,
  CpuCount: 0,
  CpuPercent: 0,
  IOMaximumIOps: 0,
  IOMaximumBandwidth: 0,
  MaskedPaths: null,
  ReadonlyPaths: null,
};
