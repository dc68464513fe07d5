/** Makes the OCI `process` of a container and of an exec in it. */
import type { ContainerConfig, HostConfig, Ulimit } from '../ports/container.js';
import type { ExecSpecInput, SpecInput } from '../ports/runtime.js';
import { containerCapabilities, processCapabilities } from './capabilities.js';
import { buildEnvironment } from './environment.js';
import type { HostFacts } from './host-facts.js';
import { INIT_PATH } from './mounts.js';
import type { OciProcess } from './oci-types.js';
import { buildRlimits } from './resources.js';
import { parseSecurityOptions } from './security-options.js';
import { lookUpUser } from './user-lookup.js';

export interface ProcessDefaults {
  /** The limits that the daemon was started with; containers without their own limits get them, too. */
  readonly inherited: readonly Ulimit[];
}

interface Common {
  readonly rootfs: string;
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  readonly user: string;
  readonly args: readonly string[];
  readonly env: readonly string[];
  readonly workingDir: string;
  readonly tty: boolean;
  readonly privileged: boolean;
  readonly consoleSize: readonly [number, number] | undefined;
  readonly appArmorProfile: string | undefined;
  readonly processLabel: string | undefined;
}

async function buildProcess(common: Common, facts: HostFacts, defaults: ProcessDefaults): Promise<OciProcess> {
  const { rootfs, hostConfig, privileged, consoleSize, tty } = common;
  const user = await lookUpUser(rootfs, common.user, hostConfig.GroupAdd ?? []);
  const security = parseSecurityOptions(hostConfig.SecurityOpt ?? []);
  const capabilities = containerCapabilities(
    { add: hostConfig.CapAdd ?? [], drop: hostConfig.CapDrop ?? [], privileged },
    facts.capabilities,
  );
  const rlimits = buildRlimits(hostConfig.Ulimits ?? [], defaults.inherited);
  return {
    terminal: tty,
    ...(tty && consoleSize && consoleSize[0] > 0 && consoleSize[1] > 0
      ? { consoleSize: { height: consoleSize[0], width: consoleSize[1] } }
      : {}),
    user,
    args: common.args,
    env: common.env,
    cwd: common.workingDir || '/',
    capabilities: processCapabilities(capabilities, user.uid),
    ...(rlimits.length === 0 ? {} : { rlimits }),
    noNewPrivileges: security.noNewPrivileges ?? false,
    ...(common.appArmorProfile === undefined ? {} : { apparmorProfile: common.appArmorProfile }),
    ...(common.processLabel ? { selinuxLabel: common.processLabel } : {}),
    oomScoreAdj: hostConfig.OomScoreAdj,
  };
}

export async function buildInitProcess(
  input: SpecInput,
  runsInit: boolean,
  facts: HostFacts,
  defaults: ProcessDefaults,
): Promise<OciProcess> {
  const { config, hostConfig, argv, rootfs } = input;
  return buildProcess(
    {
      rootfs,
      config,
      hostConfig,
      user: config.User,
      args: runsInit ? [INIT_PATH, '--', ...argv] : argv,
      env: input.environment ?? buildEnvironment({ hostname: config.Hostname, tty: config.Tty }, config.Env ?? []),
      workingDir: config.WorkingDir,
      tty: config.Tty,
      privileged: hostConfig.Privileged,
      consoleSize: hostConfig.ConsoleSize,
      appArmorProfile: input.appArmorProfile,
      processLabel: input.labels?.processLabel,
    },
    facts,
    defaults,
  );
}

/** Builds the process of an exec. It has all capabilities if the exec or its container is privileged. */
export async function buildExecProcess(
  input: ExecSpecInput,
  facts: HostFacts,
  defaults: ProcessDefaults,
): Promise<OciProcess> {
  const { config, hostConfig, rootfs } = input;
  return buildProcess(
    {
      rootfs,
      config,
      hostConfig,
      user: input.user || config.User,
      args: input.argv,
      env: buildEnvironment({ hostname: config.Hostname, tty: input.tty }, config.Env ?? [], input.env),
      workingDir: input.workingDir || config.WorkingDir,
      tty: input.tty,
      privileged: input.privileged || hostConfig.Privileged,
      consoleSize: input.consoleSize,
      appArmorProfile: input.appArmorProfile,
      processLabel: input.processLabel,
    },
    facts,
    defaults,
  );
}
