/** The container of a RUN as the specification wants it: the settings of the build and those of the daemon. */
import type { RunInstruction } from '../../../build/dockerfile/ast.js';
import type { BuildRequest, RunSettings } from '../../../ports/build.js';
import type { ContainerConfig, HostConfig } from '../../../ports/container.js';
import type { ImageRuntimeConfig } from '../../../ports/images.js';
import type { RuntimeChoice } from '../../../ports/supervisor.js';
import { DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS } from '../../../runtime/default-paths.js';
import { NOTHING_SAID } from '../run-container.js';
import type { DnsSettings } from './network-files.js';
import type { StepNetwork } from './entitlements.js';

/** The configuration of the daemon says this about steps. It may change while the daemon runs. */
export interface StepDefaults extends DnsSettings {
  readonly runtime: RuntimeChoice;
  readonly shmSizeBytes: number;
  readonly cgroupnsMode: string;
  /** @param parent of the build; empty: the daemon's. */
  readonly cgroupsPath: (id: string, parent: string) => string;
}

const HOSTNAME = 'buildkitsandbox';

export function stepHostname({ run, buildArgs }: Pick<BuildRequest, 'run' | 'buildArgs'>): string {
  return run.hostname || buildArgs.get('BUILDKIT_SANDBOX_HOSTNAME') || HOSTNAME;
}

export function stepConfig(image: ImageRuntimeConfig, hostname: string): ContainerConfig {
  return {
    Hostname: hostname,
    Domainname: '',
    User: image.User ?? '',
    AttachStdin: false,
    AttachStdout: true,
    AttachStderr: true,
    Tty: false,
    OpenStdin: false,
    StdinOnce: false,
    Env: null,
    Cmd: null,
    Image: '',
    Volumes: null,
    WorkingDir: image.WorkingDir ?? '',
    Entrypoint: null,
    OnBuild: null,
    Labels: {},
  };
}

export function stepHostConfig(
  settings: RunSettings,
  { security }: Pick<RunInstruction, 'security'>,
  network: StepNetwork,
  defaults: StepDefaults,
): HostConfig {
  const isInsecure = security === 'insecure';
  return {
    ...NOTHING_SAID,
    NetworkMode: network,
    IpcMode: 'private',
    CgroupnsMode: defaults.cgroupnsMode,
    Privileged: isInsecure,
    MaskedPaths: isInsecure ? null : DEFAULT_MASKED_PATHS,
    ReadonlyPaths: isInsecure ? null : DEFAULT_READONLY_PATHS,
    ShmSize: settings.shmSize || defaults.shmSizeBytes,
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
