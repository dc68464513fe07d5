/** Builds the OCI spec of a container from its parts. */
import { invalid } from '../errors/engine-error.js';
import type { IdRange } from '../ports/id-maps.js';
import type { BuiltSpec, SpecBuilder, SpecInput } from '../ports/runtime.js';
import type { AppArmor } from './apparmor/apparmor.js';
import { applyCdiEdits } from './cdi-edits.js';
import { resolveDeviceRequests } from './device-requests.js';
import { buildDevices } from './devices.js';
import type { HostFacts } from './host-facts.js';
import { checkMountPoints } from './mount-points.js';
import { buildMounts } from './mounts.js';
import { buildNamespaces } from './namespaces.js';
import type { OciIdMapping, OciSeccomp } from './oci-types.js';
import { buildExecProcess, buildInitProcess, type ProcessDefaults } from './process.js';
import { settlePropagation } from './propagation.js';
import { buildResources } from './resources.js';
import { fitScore, fitToUser } from './rootless.js';
import { buildSeccomp, parseSeccompProfile, type SeccompProfile } from './seccomp.js';
import { defaultSeccompProfile } from './seccomp-profile.js';
import { parseSecurityOptions } from './security-options.js';
import { buildSysctls } from './sysctls.js';
import { applyHostLimits } from './validate-resources.js';

function ociMappings(ranges: readonly IdRange[]): OciIdMapping[] {
  return ranges.map(({ containerId: containerID, hostId: hostID, count: size }) => ({ containerID, hostID, size }));
}

export interface DaemonDefaults extends ProcessDefaults {
  /** A profile from the daemon's `seccomp-profile` file, or one of these words. */
  readonly seccomp: SeccompProfile | 'builtin' | 'unconfined';
  /** Directories with specifications of CDI devices; if there are none, no container can ask for such devices. */
  readonly cdiSpecDirs: readonly string[];
  /** Undefined on hosts without it. */
  readonly appArmor: AppArmor | undefined;
}

/** Returns a function that makes the filter of a container with these capabilities; undefined: it has none. */
function seccompChooser(
  facts: HostFacts,
  defaults: () => DaemonDefaults,
): (input: SpecInput, capabilities: readonly string[]) => OciSeccomp | undefined {
  const defaultProfile = defaultSeccompProfile(facts.x32);
  const builtin = new Map<string, OciSeccomp>();

  return ({ hostConfig }, capabilities) => {
    const chosen = parseSecurityOptions(hostConfig.SecurityOpt ?? []).seccomp;
    const profile = chosen ?? (hostConfig.Privileged ? 'unconfined' : defaults().seccomp);
    if (profile === 'unconfined') return undefined;
    if (!facts.seccomp) {
      if (chosen === undefined || chosen === 'builtin') return undefined;
      throw invalid('seccomp is not enabled in your kernel, cannot run a custom seccomp profile');
    }
    const target = { architecture: facts.architecture, kernel: facts.kernel, capabilities };
    if (profile !== 'builtin')
      return buildSeccomp(typeof profile === 'string' ? parseSeccompProfile(profile) : profile, target);
    const key = capabilities.join();
    const filter = builtin.get(key) ?? buildSeccomp(defaultProfile, target);
    // Few sets are in use at a time; the limit is for sets that vary without end.
    if (builtin.size >= 64) builtin.clear();
    builtin.set(key, filter);
    return filter;
  };
}

/** Makes the builder. `defaults` is called for each container, because the daemon's configuration may change. */
export function createSpecBuilder(facts: HostFacts, defaults: () => DaemonDefaults): SpecBuilder {
  const seccompFor = seccompChooser(facts, defaults);

  async function requireProfile({ appArmorProfile }: Pick<SpecInput, 'appArmorProfile'>): Promise<void> {
    if (appArmorProfile !== undefined) await defaults().appArmor?.require(appArmorProfile);
  }

  async function build(input: SpecInput): Promise<BuiltSpec> {
    const { config } = input;
    const { hostConfig, warnings } = applyHostLimits(input.hostConfig, facts);
    const runsInit = input.initPath !== undefined && hostConfig.PidMode === '';
    const [process, devices, resources, propagation, edits] = await Promise.all([
      buildInitProcess(input, runsInit, facts, defaults()),
      buildDevices(hostConfig),
      buildResources(hostConfig),
      settlePropagation(input.mounts),
      resolveDeviceRequests(hostConfig.DeviceRequests, defaults().cdiSpecDirs),
      requireProfile(input),
      checkMountPoints(input.rootfs),
    ]);
    const mounts = buildMounts(
      { ...input, mounts: propagation.mounts },
      { recursiveReadOnly: facts.recursiveReadOnly, runsInit },
    );
    const edited = await applyCdiEdits(
      { process, mounts, ...devices, hooks: {}, netDevices: {}, intelRdt: undefined },
      edits,
    );
    const seccomp = seccompFor(input, process.capabilities.bounding);
    const sysctl = buildSysctls(input, facts);
    const spec = {
      ociVersion: '1.0.2',
      process: { ...edited.process },
      root: { path: input.rootfs, readonly: hostConfig.ReadonlyRootfs },
      ...(hostConfig.UTSMode === 'host' ? {} : { hostname: config.Hostname }),
      mounts: edited.mounts,
      ...(Object.keys(edited.hooks).length === 0 ? {} : { hooks: edited.hooks }),
      ...(hostConfig.Annotations ? { annotations: hostConfig.Annotations } : {}),
      linux: {
        ...(input.userns
          ? { uidMappings: ociMappings(input.userns.uids), gidMappings: ociMappings(input.userns.gids) }
          : {}),
        namespaces: buildNamespaces(input, facts.cgroup.namespaces),
        cgroupsPath: input.cgroupsPath,
        resources: { ...resources, devices: edited.rules },
        devices: edited.nodes,
        ...(Object.keys(edited.netDevices).length === 0 ? {} : { netDevices: edited.netDevices }),
        ...(edited.intelRdt ? { intelRdt: edited.intelRdt } : {}),
        maskedPaths: hostConfig.MaskedPaths ?? [],
        readonlyPaths: hostConfig.ReadonlyPaths ?? [],
        ...(Object.keys(sysctl).length === 0 ? {} : { sysctl }),
        ...(seccomp ? { seccomp } : {}),
        ...(input.labels ? { mountLabel: input.labels.mountLabel } : {}),
        ...(propagation.root ? { rootfsPropagation: propagation.root } : {}),
      },
    };
    return { spec: fitToUser(spec, facts), warnings };
  }

  return {
    appArmorProfile: (hostConfig) => defaults().appArmor?.profileOf(hostConfig),
    build,
    buildExec: async (input) => {
      await requireProfile(input);
      return { ...fitScore(await buildExecProcess(input, facts, defaults()), facts.lowestOomScore) };
    },
  };
}
