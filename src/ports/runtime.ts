/** Contract of the OCI spec builder. */
import type { ContainerConfig, HostConfig, MountPoint } from './container.js';
import type { IdMaps } from './id-maps.js';
import type { OciSpec } from './supervisor.js';

export interface SpecInput {
  readonly id: string;
  readonly name: string;
  /** Entrypoint and command, joined; never empty. */
  readonly argv: readonly string[];
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  /** All variables of the process; if absent, those that a container with this configuration has. */
  readonly environment?: readonly string[];
  /** Absolute path of the mounted root filesystem. */
  readonly rootfs: string;
  /** Path of the network namespace; undefined: the host's, or with `userns` one that the runtime makes. */
  readonly netnsPath: string | undefined;
  /** Host files that become /etc/hostname, /etc/hosts and /etc/resolv.conf. */
  readonly files: { readonly hostname: string; readonly hosts: string; readonly resolvConf: string };
  readonly mounts: readonly MountPoint[];
  /** Absolute cgroup path or systemd slice triple, from daemon and container settings. */
  readonly cgroupsPath: string;
  /** Namespaces of other containers that this one joins, by kind, as /proc paths. */
  readonly joins?: Readonly<Partial<Record<'ipc' | 'pid' | 'user', string>>>;
  /** Maps of the container's user namespace; undefined if it has the host's. */
  readonly userns?: IdMaps | undefined;
  /** Host directory that becomes /dev/shm, for IPC modes that share it. If absent, the container has its own tmpfs. */
  readonly shmPath?: string;
  /** Host path of the init binary if the container runs under one. */
  readonly initPath?: string;
  /** Name of the AppArmor profile; undefined where that is not in effect. */
  readonly appArmorProfile?: string | undefined;
  /** SELinux labels of processes and files; absent when the container has none. */
  readonly labels?: { readonly processLabel: string; readonly mountLabel: string } | undefined;
}

export interface BuiltSpec {
  /** Numbers above 2^53 are bigints. */
  readonly spec: OciSpec;
  /** Limits that this host cannot apply, for the create response. */
  readonly warnings: readonly string[];
}

export interface ExecSpecInput {
  /** The container that the process joins. */
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  readonly rootfs: string;
  readonly argv: readonly string[];
  readonly env: readonly string[];
  /** '' means the container's user. */
  readonly user: string;
  /** '' means the container's directory. */
  readonly workingDir: string;
  readonly tty: boolean;
  readonly privileged: boolean;
  /** Height and width. */
  readonly consoleSize?: readonly [number, number];
  /** The profile of the container; undefined if it has none. */
  readonly appArmorProfile?: string | undefined;
  /** The container's SELinux label; empty or absent if it has none. */
  readonly processLabel?: string;
}

export interface SpecBuilder {
  /** Returns the AppArmor profile for a container with these settings; undefined where that is not in effect. */
  appArmorProfile(hostConfig: Pick<HostConfig, 'Privileged' | 'SecurityOpt'>): string | undefined;
  /**
   * Builds the spec of a container. It reads passwd, group and device files, writes nothing, and has
   * the default AppArmor profile loaded when the kernel has lost it.
   * @throws EngineError invalid, not-found when something that the container asks for is missing.
   */
  build(input: SpecInput): Promise<BuiltSpec>;
  /** Builds the OCI `process` object of an exec. Throws as `build`. */
  buildExec(input: ExecSpecInput): Promise<Record<string, unknown>>;
}
