/** From a create request to the first record: image, defaults of the daemon and of the host. Nothing is touched yet. */
import { invalid, isEngineError } from '../../../errors/engine-error.js';
import { foreignPlatformWarning, requirePlatform } from '../../../images/platform.js';
import { memberExcess } from '../../../ports/config-limits.js';
import { MAX_INTEGER, type HostConfig, type MountPoint } from '../../../ports/container.js';
import type { Image, ImageStore } from '../../../ports/images.js';
import type { NetworkDriver, NetworkSummary } from '../../../ports/network.js';
import type { LogDriver } from '../../../ports/logs.js';
import { parsePlatform } from '../../../registry/platform.js';
import { isShim } from '../../../config/runtime-entries.js';
import { checkConflicts } from '../../../runtime/validate.js';
import {
  NEVER,
  type ContainerRecord,
  type CreationDefaults,
  type EndpointRequest,
  type NetworkAttachment,
} from '../container.record.js';
import type { CreateRequest } from './create-request.js';
import { mergeImageConfig } from './image-config.js';
import { withLabelOptions } from './security-options.js';
import { planLegacyLinks } from '../network/legacy-links.js';
import { inheritedMounts, planMounts } from '../mounts/mount-plan.js';
import { checkBeside, checkLinkNames, checkNewEndpoint, checkSharedEndpoint } from '../network/network-change.js';
import { parseSignal } from '../../../text/signals.js';
import { optional } from '../effects/tools.js';
import { now } from '../streams/timestamps.js';
import { ownMember } from '../../../text/own-member.js';
import { DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS } from '../../../runtime/default-paths.js';

/** The daemon's configuration gives these values to containers that name none. They are read anew for each create. */
export interface ContainerDefaults {
  readonly logDriver: string;
  readonly logOptions: Readonly<Record<string, string>>;
  readonly runtime: string;
  readonly runtimes: ReadonlySet<string>;
  readonly ipcMode: string;
  readonly cgroupnsMode: string;
  readonly privilegedCgroupnsMode: string;
  readonly shmSizeBytes: number;
  readonly created: CreationDefaults;
  readonly hostname: string;
}

export interface DraftDeps {
  readonly images: ImageStore;
  readonly network: NetworkDriver;
  readonly logs: LogDriver;
  readonly defaults: () => ContainerDefaults;
  /** Throws invalid for what the engine refuses; returns warnings and the host config as it can be applied. */
  readonly validate: (
    config: ContainerRecord['config'],
    host: HostConfig,
  ) => { readonly hostConfig: HostConfig; readonly warnings: readonly string[] };
  readonly find: (reference: string) => ContainerRecord;
  /** Gives a container SELinux labels; undefined when containers have none. */
  readonly takeLabels: (id: string, host: HostConfig) => ContainerRecord['labels'];
  /** Directory with the root file systems of all containers. */
  readonly dataRoot: string;
}

export function draftContainer(
  deps: DraftDeps,
  request: CreateRequest,
  id: string,
  name: string,
): { record: ContainerRecord; warnings: string[] } {
  const defaults = deps.defaults();
  checkConflicts(request.config, request.hostConfig);
  const { image, warnings } = imageOf(deps.images.resolve(request.config.Image), request);
  const { config, path, args } = mergeImageConfig(request.config, image.config.config ?? {});
  const excess = memberExcess('', config);
  if (excess !== undefined) throw invalid(`invalid container configuration: ${excess}`);
  // An image may be for another kernel; a stop has SIGTERM then.
  if (request.config.StopSignal) parseSignal(request.config.StopSignal);
  const given = withDefaults(request.hostConfig, defaults, deps);
  const networks = config.NetworkDisabled ? {} : planNetworks(deps, given, request.endpoints);
  const [, donorName = ''] = /^container:(.+)$/s.exec(given.NetworkMode) ?? [];
  const donor = donorName === '' ? undefined : deps.find(donorName);
  // A container that shares a network also shares its names.
  if (donor) Object.assign(config, { Hostname: donor.config.Hostname, Domainname: donor.config.Domainname });
  if (config.Hostname === '')
    config.Hostname = given.NetworkMode === 'host' || given.UTSMode === 'host' ? defaults.hostname : id.slice(0, 12);
  const checked = deps.validate(config, given);
  if (!defaults.runtimes.has(checked.hostConfig.Runtime) && !isShim(checked.hostConfig.Runtime)) {
    throw invalid(`unknown or invalid runtime name: ${checked.hostConfig.Runtime}`);
  }
  deps.logs.validate(checked.hostConfig.LogConfig.Type, checked.hostConfig.LogConfig.Config);
  const record: ContainerRecord = {
    version: 1,
    id,
    name,
    created: now(),
    path,
    args,
    image: image.id,
    topLayer: image.topLayer,
    ...imageManifest(image),
    config,
    hostConfig: checked.hostConfig,
    defaults: defaults.created,
    networks,
    links: planLegacyLinks(checked.hostConfig, deps.find),
    mounts: planMounts(config, checked.hostConfig, {
      inherited: inheritedMounts(checked.hostConfig.VolumesFrom ?? [], (reference) => named(deps, reference).mounts),
      keepsSubmountsWritable: request.keepsSubmountsWritable,
      dataRoot: deps.dataRoot,
    }).map((point) => withImage(deps.images, point)),
    ports: [],
    state: { status: 'created', pid: 0, exitCode: 0, error: '', oomKilled: false, startedAt: NEVER, finishedAt: NEVER },
    restartCount: 0,
    manuallyStopped: false,
    logPath: '',
  };
  // They are taken last, because nobody would give back those of a draft that fails.
  const labels = deps.takeLabels(id, checked.hostConfig);
  return {
    record: { ...record, ...optional('labels', labels) },
    warnings: [...request.warnings, ...warnings, ...checked.warnings],
  };
}

function withDefaults(host: HostConfig, defaults: ContainerDefaults, deps: DraftDeps): HostConfig {
  const logType = host.LogConfig.Type || defaults.logDriver;
  const [ipcMode, pidMode] = [byId(host.IpcMode, deps), byId(host.PidMode, deps)];
  return {
    ...host,
    NetworkMode: host.NetworkMode === '' || host.NetworkMode === 'default' ? 'bridge' : byId(host.NetworkMode, deps),
    PidMode: pidMode,
    LogConfig: {
      Type: logType,
      Config: { ...defaultLogOptions(logType, defaults), ...host.LogConfig.Config },
    },
    ShmSize: host.ShmSize === 0 ? defaults.shmSizeBytes : host.ShmSize,
    IpcMode: ipcMode || defaults.ipcMode,
    CgroupnsMode: host.CgroupnsMode || (host.Privileged ? defaults.privilegedCgroupnsMode : defaults.cgroupnsMode),
    SecurityOpt: withLabelOptions({ ...host, IpcMode: ipcMode, PidMode: pidMode }, deps.find),
    Runtime: host.Runtime || defaults.runtime,
    MemorySwap: host.Memory > 0 && host.MemorySwap === 0 ? Math.min(host.Memory * 2, MAX_INTEGER) : host.MemorySwap,
    OomKillDisable: host.OomKillDisable ?? false,
    RestartPolicy: { ...host.RestartPolicy, Name: host.RestartPolicy.Name || 'no' },
    MaskedPaths: host.MaskedPaths ?? (host.Privileged || unconfinedSystemPaths(host) ? null : DEFAULT_MASKED_PATHS),
    ReadonlyPaths:
      host.ReadonlyPaths ?? (host.Privileged || unconfinedSystemPaths(host) ? null : DEFAULT_READONLY_PATHS),
  };
}

/** Returns the manifest for the platform of the container; it stays when the names of its image change. */
function imageManifest({
  published,
  config: { architecture, os, variant },
}: Image): Pick<ContainerRecord, 'imageManifest'> {
  const manifest = published?.manifests.find(({ digest }) => digest === published.own);
  return manifest
    ? {
        imageManifest: {
          ...manifest,
          platform: manifest.platform ?? { architecture, os, ...(variant === undefined ? {} : { variant }) },
        },
      }
    : {};
}

/** Gives a mount the image that has its name now. @throws EngineError not-found. */
function withImage(images: ImageStore, point: MountPoint): MountPoint {
  if (point.Type !== 'image' || point.Source !== '' || point.Name === undefined) return point;
  const { id, topLayer } = images.resolve(point.Name);
  return { ...point, Source: id, TopLayer: topLayer };
}

/**
 * Returns the daemon's log options for a container. They are meant for the daemon's default driver; another driver
 * takes only those of the local copy (`cache-…`).
 */
function defaultLogOptions(
  logType: string,
  { logDriver, logOptions }: ContainerDefaults,
): Readonly<Record<string, string>> {
  return logType === logDriver
    ? logOptions
    : Object.fromEntries(Object.entries(logOptions).filter(([name]) => name.startsWith('cache-')));
}

function unconfinedSystemPaths(host: HostConfig): boolean {
  return host.SecurityOpt?.some((option) => option === 'systempaths=unconfined') === true;
}

/** Replaces the container's name in a mode by its ID, because names change. */
function byId(mode: string, deps: DraftDeps): string {
  const reference = mode.startsWith('container:') ? mode.slice('container:'.length) : '';
  return reference === '' ? mode : `container:${named(deps, reference).id}`;
}

/**
 * Returns the container that the request names. Clients take a 404 for a missing image and pull it: a name that does
 * not exist is a bad parameter instead.
 */
function named(deps: DraftDeps, reference: string): ContainerRecord {
  try {
    return deps.find(reference);
  } catch (error) {
    if (isEngineError(error, 'not-found')) throw invalid(error.message, { cause: error });
    throw error;
  }
}

function planNetworks(
  deps: DraftDeps,
  host: HostConfig,
  endpoints: Readonly<Record<string, EndpointRequest>>,
): Record<string, NetworkAttachment> {
  const mode = host.NetworkMode;
  if (mode.startsWith('container:')) {
    for (const [network, request] of Object.entries(endpoints))
      if (network.startsWith('container:')) checkSharedEndpoint(network, request);
    return {};
  }
  const plan = new Map<string, NetworkAttachment>();
  const add = (nameOrId: string, request: EndpointRequest): void => {
    const network = findNetwork(deps.network, nameOrId);
    // The daemon has no default network, so the container gets loopback alone.
    if (!network && nameOrId === 'bridge') return;
    if (network) checkNewEndpoint(network, request);
    const name = network?.name ?? nameOrId;
    checkBeside(
      mode,
      name,
      [...plan.keys()].filter((other) => other !== name),
    );
    plan.set(name, { request });
  };
  add(mode, ownMember(endpoints, mode) ?? {});
  for (const [network, request] of Object.entries(endpoints)) if (network !== mode) add(network, request);
  checkLinkNames([...plan.values()].map(({ request }) => request));
  return Object.fromEntries(plan);
}

/**
 * Returns undefined for a network that does not exist. Clients take a "not found" at this point for a missing image, so
 * the start reports it.
 */
function findNetwork(networks: NetworkDriver, reference: string): NetworkSummary | undefined {
  try {
    return networks.resolve(reference);
  } catch (error) {
    if (isEngineError(error, 'not-found')) return undefined;
    throw error;
  }
}

/** Returns the image of the platform that the request names, or else the one that suits this machine best. */
function imageOf(image: Image, { platform, config }: CreateRequest): { image: Image; warnings: string[] } {
  if (platform) return { image: requirePlatform(image, parsePlatform(platform), config.Image), warnings: [] };
  const warning = foreignPlatformWarning(image);
  return { image, warnings: warning === undefined ? [] : [warning] };
}
