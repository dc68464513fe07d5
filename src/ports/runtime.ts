/** Contract of the OCI spec builder. */
import type { ContainerConfig, HostConfig, MountPoint } from './container.js';
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
  /** Path of the network namespace; undefined: the host's. */
  readonly netnsPath: string | undefined;
  /** Host files that become /etc/hostname, /etc/hosts and /etc/resolv.conf. */
  readonly files: { readonly hostname: string; readonly hosts: string; readonly resolvConf: string };
  readonly mounts: readonly MountPoint[];
  /** Absolute cgroup path or systemd slice triple, from daemon and container settings. */
  readonly cgroupsPath: string;
  /** Namespaces of other containers that this one joins, by kind, as /proc paths. */
  readonly joins?: Readonly<Partial<Record<'ipc' | 'pid' | 'uts', string>>>;
  /** Host path of the init binary when the container runs under one. */
  readonly initPath?: string;
}

export interface BuiltSpec {
  readonly spec: OciSpec;
  /** For the create response: limits that this host cannot apply. */
  readonly warnings: readonly string[];
}
