/** Builds the OCI spec of the process of a managed plugin. */
import { invalid } from '../errors/engine-error.js';
import type { PluginFiles, PluginMount, PluginRecord } from '../ports/managed-plugin.js';
import type { OciSpec } from '../ports/supervisor.js';
import { containerCapabilities, processCapabilities } from './capabilities.js';
import { DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS } from './default-paths.js';
import { buildDevices } from './devices.js';
import type { HostFacts } from './host-facts.js';
import { checkMountPoints } from './mount-points.js';
import { systemMounts } from './mounts.js';
import type { OciMount, OciNamespace } from './oci-types.js';
import { fitToUser } from './rootless.js';

export interface PluginProcessInput {
  readonly record: PluginRecord;
  readonly files: PluginFiles;
  /** Directory on the host in which the plugin makes its socket. */
  readonly socketDir: string;
  /** Directory on the host with the FIFOs of a log driver, which only the daemon makes. */
  readonly loggingDir: string;
  readonly cgroupsPath: string;
}

/** The plugin finds these directories where plugins look for them. */
const SOCKETS = '/run/docker/plugins';
const LOGGING = '/run/docker/logging';
const SHM_BYTES = 64 << 20;
const DEFAULT_PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Returns the spec. The process is root without a seccomp filter, as plugins expect: what it may do is decided by its
 * privileges, which whoever installed it has granted.
 * @throws EngineError invalid for a mount without a source, an unknown capability, a device that is not there, and
 * files that would lead the runtime out of them.
 */
export async function buildPluginSpec(input: PluginProcessInput, facts: HostFacts): Promise<OciSpec> {
  await checkMountPoints(input.files.rootfs);
  const { config, settings } = input.record;
  const { AllowAllDevices, Capabilities } = config.Linux;
  const capabilities = containerCapabilities(
    { add: Capabilities ?? [], drop: [], privileged: false },
    facts.capabilities,
  );
  const devices = await buildDevices({
    Privileged: false,
    Devices: settings.Devices.flatMap(({ Path }) =>
      Path === null ? [] : [{ PathOnHost: Path, PathInContainer: Path, CgroupPermissions: 'rwm' }],
    ),
    DeviceCgroupRules: AllowAllDevices ? ['a *:* rwm'] : [],
  });
  const spec = {
    ociVersion: '1.0.2',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [...(config.Entrypoint ?? []), ...settings.Args],
      env: [DEFAULT_PATH, ...settings.Env],
      cwd: config.WorkingDir || '/',
      capabilities: processCapabilities(capabilities, 0),
      noNewPrivileges: false,
    },
    root: { path: input.files.rootfs, readonly: false },
    hostname: input.record.id.slice(0, 12),
    mounts: mountsOf(input),
    linux: {
      namespaces: namespacesOf(input.record),
      cgroupsPath: input.cgroupsPath,
      resources: { devices: devices.rules },
      devices: devices.nodes,
      maskedPaths: DEFAULT_MASKED_PATHS,
      readonlyPaths: DEFAULT_READONLY_PATHS,
      ...(config.PropagatedMount === '' ? {} : { rootfsPropagation: 'rshared' }),
    },
  };
  return fitToUser(spec, facts);
}

function namespacesOf({ config: { Network, IpcHost, PidHost } }: PluginRecord): OciNamespace[] {
  return [
    { type: 'mount' },
    { type: 'uts' },
    ...(PidHost ? [] : [{ type: 'pid' as const }]),
    ...(IpcHost ? [] : [{ type: 'ipc' as const }]),
    ...(Network.Type === 'host' ? [] : [{ type: 'network' as const }]),
  ];
}

function mountsOf({ record: { config, settings }, files, socketDir, loggingDir }: PluginProcessInput): OciMount[] {
  const isLogDriver = config.Interface.Types.some(({ capability }) => capability.toLowerCase() === 'logdriver');
  const own: OciMount[] = [
    ...(config.PropagatedMount === ''
      ? []
      : [bind(files.propagated, config.PropagatedMount, ['rbind', 'rw', 'rshared'])]),
    bind(socketDir, SOCKETS, ['rbind', 'rw', 'rprivate']),
    ...(isLogDriver ? [bind(loggingDir, LOGGING, ['rbind', 'ro', 'rprivate'])] : []),
    ...(config.Network.Type === ''
      ? []
      : ['/etc/hosts', '/etc/resolv.conf'].map((path) => bind(path, path, ['rbind', 'ro']))),
  ];
  const wanted = settings.Mounts.map(ofConfig);
  const taken = new Set(wanted.map(({ destination }) => destination));
  const system = systemMounts({
    hostConfig: {
      Privileged: false,
      ReadonlyRootfs: false,
      IpcMode: config.IpcHost ? 'host' : 'private',
      SecurityOpt: null,
      ShmSize: SHM_BYTES,
    },
  });
  return [...system.filter(({ destination }) => !taken.has(destination)), ...own, ...wanted];
}

function bind(source: string, destination: string, options: readonly string[]): OciMount {
  return { type: 'bind', source, destination, options };
}

function ofConfig({ Name, Source, Destination, Type, Options }: PluginMount): OciMount {
  if (Source === null || Source === '')
    throw invalid(`mount source is not specified: mount ${JSON.stringify(Name || Destination)}`, {
      code: 'PLUGIN_MOUNT',
    });
  return { type: Type || 'bind', source: Source, destination: Destination, options: Options ?? [] };
}
