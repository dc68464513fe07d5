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
  /** Of the container's user namespace; undefined: it has the host's. */
  readonly userns?: IdMaps | undefined;
  /** Host directory that becomes /dev/shm, for IPC modes that share it. Absent: a tmpfs of its own. */
  readonly shmPath?: string;
  /** Host path of the init binary when the container runs under one. */
  readonly initPath?: string;
}

export interface BuiltSpec {
  /** Numbers above 2^53 are bigints. */
  readonly spec: OciSpec;
  /** For the create response: limits that this host cannot apply. */
  readonly warnings: readonly string[];
}

export interface ExecSpecInput {
  /** The container that the process joins. */
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  readonly rootfs: string;
  readonly argv: readonly string[];
  readonly env: readonly string[];
  /** '': the container's. */
  readonly user: string;
  /** '': the container's. */
  readonly workingDir: string;
  readonly tty: boolean;
  readonly privileged: boolean;
  /** Height and width. */
  readonly consoleSize?: readonly [number, number];
}

export interface SpecBuilder {
  /**
   * Reads passwd, group and device files, writes nothing.
   * @throws EngineError invalid, not-found: what the container asks for is not there.
   */
  build(input: SpecInput): Promise<BuiltSpec>;
  /** The OCI `process` object of an exec. Throws as `build`. */
  buildExec(input: ExecSpecInput): Promise<Record<string, unknown>>;
}
