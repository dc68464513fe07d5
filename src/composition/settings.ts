/**
 * Derives from the configuration what actors and routes need: defaults of containers, runtimes, and what `info` shows.
 */
import { execFile } from 'node:child_process';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { CreationDefaults } from '../actors/container/container.record.js';
import type { ContainerDefaults } from '../actors/container/create/draft.js';
import type { ComponentVersion, RuntimeInfo, SystemSettings } from '../actors/engine/system.js';
import { cdiDirs } from '../config/cdi-dirs.js';
import type { Config, FixedConfig } from '../config/config.js';
import type { RuntimeEntry } from '../config/runtime-entries.js';
import type { BridgeOptions } from '../network/default-bridge.js';
import { chosenBackend } from '../network/firewall-backends.js';
import type { RuntimeChoice, TaskService } from '../ports/supervisor.js';
import type { AppArmor } from '../runtime/apparmor/apparmor.js';
import type { SeLinux } from '../runtime/selinux/selinux.js';
import type { HostFacts } from '../runtime/host-facts.js';
import { OWN_USERS } from '../sys/users/remapped-user.js';
import type { Roots } from './roots.js';
import { chooseRuntime, RUNC_SHIM } from './runtime-choice.js';

const INIT_BINARIES = ['docker-init', 'tini-static', 'tini'];

export interface Settings {
  readonly bridge: BridgeOptions | undefined;
  readonly cgroupDriver: FixedConfig['cgroupDriver'];
  readonly initPath: string;
  readonly shown: () => SystemSettings;
  runtimeChoice(name: string): RuntimeChoice;
  components(tasks: TaskService): Promise<ComponentVersion[]>;
}

/** The host's means to confine containers. */
interface Confinement {
  readonly facts: HostFacts;
  readonly appArmor: AppArmor | undefined;
  readonly seLinux: SeLinux | undefined;
}

export function containerDefaults(config: Config, hostname: string, facts: HostFacts): ContainerDefaults {
  return {
    logDriver: config.logDriver,
    logOptions: config.logOpts,
    runtime: config.defaultRuntime,
    runtimes: new Set(['runc', RUNC_SHIM, ...Object.keys(config.runtimes)]),
    ipcMode: config.defaultIpcMode,
    cgroupnsMode: cgroupnsMode(config, facts),
    // Programs that manage control groups of version 1, such as systemd, find theirs only in the host's namespace.
    privilegedCgroupnsMode: facts.cgroup.version === 2 ? cgroupnsMode(config, facts) : 'host',
    shmSizeBytes: config.defaultShmSizeBytes,
    created: creationDefaults(config),
    hostname,
  };
}

/** A container keeps these options of the daemon, even when they change later. */
export function creationDefaults({ defaultUlimits, noNewPrivileges, init }: FixedConfig): CreationDefaults {
  return { ulimits: defaultUlimits, noNewPrivileges, init };
}

function cgroupnsMode({ defaultCgroupnsMode }: FixedConfig, { cgroup }: HostFacts): 'host' | 'private' {
  return defaultCgroupnsMode || (cgroup.version === 2 ? 'private' : 'host');
}

export async function systemSettings(
  current: () => Config,
  roots: Roots,
  confinement: Confinement,
  id: string,
): Promise<Settings> {
  const { facts } = confinement;
  const config = current();
  const { cgroupDriver } = config;
  const initPath = config.initPath || (await firstOnPath(INIT_BINARIES));
  const firewallBackend = chosenBackend(config.firewallBackend);
  return {
    bridge: config.bridge === 'none' ? undefined : bridgeOptions(config),
    cgroupDriver,
    initPath,
    shown: () => ({
      ...shownOptions(current()),
      id,
      dataRoot: roots.dataRoot,
      cgroupDriver,
      cgroupVersion: facts.cgroup.version === 2 ? '2' : '1',
      securityOptions: securityOptions(current(), roots, confinement),
      supervisorAddress: config.supervisor || join(roots.execRoot, 'supervisor', 'supervisor.sock'),
      initBinary: initPath === '' ? '' : (initPath.split('/').at(-1) ?? ''),
      limits: facts.cgroup,
      // The one that writes rules since the start, whatever programs have come or gone since.
      firewallBackend,
    }),
    runtimeChoice: (name) =>
      chooseRuntime(current().runtimes, name, {
        systemdCgroup: cgroupDriver === 'systemd',
        noPivotRoot: config.noPivotRoot,
        wrappersDir: join(roots.execRoot, 'runtimes'),
      }),
    components: (tasks) => componentVersions(tasks, initPath),
  };
}

/** Returns what `info` shows of the present configuration. */
function shownOptions(
  config: Config,
): Omit<
  SystemSettings,
  | 'id'
  | 'dataRoot'
  | 'cgroupDriver'
  | 'cgroupVersion'
  | 'securityOptions'
  | 'supervisorAddress'
  | 'initBinary'
  | 'limits'
  | 'firewallBackend'
> {
  const isNetwork = (registry: string): boolean => registry.includes('/');
  return {
    debug: config.debug,
    labels: config.labels,
    authorizationPlugins: config.authorizationPlugins,
    experimental: config.experimental,
    liveRestore: config.liveRestore,
    defaultRuntime: config.defaultRuntime,
    runtimes: shownRuntimes(config),
    logDriver: config.logDriver,
    registryMirrors: config.registryMirrors,
    insecureCidrs: config.insecureRegistries.filter(isNetwork),
    insecureHosts: config.insecureRegistries.filter((registry) => !isNetwork(registry)),
    httpProxy: config.httpProxy,
    httpsProxy: config.httpsProxy,
    noProxy: config.noProxy,
    cdiSpecDirs: cdiDirs(config.cdiSpecDirs, config.features),
    supervisorNamespace: config.supervisorNamespace,
    pluginsNamespace: config.supervisorPluginsNamespace,
    addressPools: config.defaultAddressPools,
    genericResources: config.nodeGenericResources,
  };
}

function shownRuntimes({ runtimes }: Config): SystemSettings['runtimes'] {
  const all: readonly (readonly [name: string, entry: RuntimeEntry])[] = [
    [RUNC_SHIM, { path: 'runc' }],
    ['runc', { path: 'runc' }],
    ...Object.entries(runtimes),
  ];
  return Object.fromEntries(all.map(([name, entry]) => [name, describe(entry)]));
}

function securityOptions(config: Config, roots: Roots, { facts, appArmor, seLinux }: Confinement): readonly string[] {
  return [
    ...(appArmor?.isInEffect ? ['name=apparmor'] : []),
    ...(facts.seccomp ? [`name=seccomp,profile=${config.seccompProfile}`] : []),
    ...(seLinux ? ['name=selinux'] : []),
    ...(roots.idMaps || roots.shownMaps || config.usernsRemap === OWN_USERS ? ['name=userns'] : []),
    ...(config.rootless ? ['name=rootless'] : []),
    ...(facts.cgroup.namespaces && cgroupnsMode(config, facts) === 'private' ? ['name=cgroupns'] : []),
    ...(config.noNewPrivileges ? ['name=no-new-privileges'] : []),
  ];
}

async function componentVersions(tasks: TaskService, initPath: string): Promise<ComponentVersion[]> {
  const containerd = await tasks.version();
  return [
    { name: 'containerd', version: containerd.version, commit: containerd.revision },
    ...(await versionOf('runc', 'runc', /runc version (\S+)/, /commit: (\S+)/)),
    ...(initPath === '' ? [] : await versionOf('docker-init', initPath, /version (\S+)/, /git\.(\S+)/)),
  ];
}

/** All of them but the name are called like the setting. */
function bridgeOptions(config: FixedConfig): BridgeOptions {
  return { ...config, name: config.bridge || 'engine0' };
}

function describe({ path, runtimeArgs = [], runtimeType }: RuntimeEntry): RuntimeInfo {
  return {
    ...(path === undefined ? {} : { path }),
    ...(runtimeType === undefined ? {} : { runtimeType }),
    ...(runtimeArgs.length === 0 ? {} : { runtimeArgs }),
  };
}

async function firstOnPath(names: readonly string[]): Promise<string> {
  for (const name of names) {
    for (const directory of (process.env['PATH'] ?? '/usr/bin:/bin').split(delimiter)) {
      const path = join(directory, name);
      if (
        await access(path).then(
          () => true,
          () => false,
        )
      ) {
        return path;
      }
    }
  }
  return '';
}

async function versionOf(name: string, command: string, version: RegExp, commit: RegExp): Promise<ComponentVersion[]> {
  try {
    const { stdout } = await promisify(execFile)(command, ['--version']);
    return [{ name, version: version.exec(stdout)?.[1] ?? 'unknown', commit: commit.exec(stdout)?.[1] ?? '' }];
  } catch {
    // The program is missing, so there is no version to show.
    return [];
  }
}
