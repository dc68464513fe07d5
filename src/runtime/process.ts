/** Makes the OCI `process` of a container and of an exec in it. */
import { invalid } from '../errors/engine-error.js';
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
  /** How the text of a refusal begins. */
  readonly failure: string;
  readonly env: readonly string[];
  readonly workingDir: string;
  readonly tty: boolean;
  readonly privileged: boolean;
  readonly consoleSize: readonly [number, number] | undefined;
  readonly appArmorProfile: string | undefined;
  readonly processLabel: string | undefined;
}

/** The kernel takes no path that is longer (PATH_MAX without the NUL at its end). */
const MOST_PATH_BYTES = 4095;
const SHOWN_CHARS = 100;

/**
 * Refuses what can be no path, in the words of the runtime. runc tells of it itself, but hangs for ever when it has
 * some 64 KiB or more, as its error then fills a pipe that nobody reads, and so does whoever waits for it.
 */
function checkPaths({ args, workingDir, failure }: Common): void {
  const [command = ''] = args;
  const refuse = (path: string, tell: (shown: string) => string): void => {
    if (Buffer.byteLength(path) <= MOST_PATH_BYTES) return;
    const text = tell(JSON.stringify(`${path.slice(0, SHOWN_CHARS)}…`));
    throw invalid(`${failure}: unable to start container process: ${text}`, { details: { runtimeError: true } });
  };
  const why = command.includes('/') ? 'file name too long' : 'executable file not found in $PATH';
  refuse(command, (shown) => `exec: ${shown}: ${why}`);
  refuse(workingDir, (shown) => `chdir to cwd (${shown}) set in config.json failed: file name too long`);
}

async function buildProcess(common: Common, facts: HostFacts, defaults: ProcessDefaults): Promise<OciProcess> {
  checkPaths(common);
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
      failure: 'failed to create shim task: OCI runtime create failed: runc create failed',
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
      failure: 'OCI runtime exec failed: exec failed',
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
