/**
 * Contract of managed plugins: plugins whose processes the daemon runs. Members of a configuration have the names that
 * the Engine API shows; null is a list or a value that the configuration does not have.
 */

type Texts = readonly string[] | null;

/** A service that a plugin offers, written `docker.volumedriver/1.0`: prefix, capability, version. */
export interface PluginType {
  readonly prefix: string;
  readonly capability: string;
  readonly version: string;
}

export interface PluginMount {
  readonly Name: string;
  readonly Description: string;
  readonly Settable: Texts;
  /** Path on the host. */
  readonly Source: string | null;
  readonly Destination: string;
  readonly Type: string;
  readonly Options: Texts;
}

export interface PluginDevice {
  readonly Name: string;
  readonly Description: string;
  readonly Settable: Texts;
  readonly Path: string | null;
}

export interface PluginEnv {
  readonly Name: string;
  readonly Description: string;
  readonly Settable: Texts;
  readonly Value: string | null;
}

/** `config.json` of a plugin. */
export interface PluginConfig {
  readonly DockerVersion?: string;
  readonly Description: string;
  readonly Documentation: string;
  readonly Interface: {
    readonly Types: readonly PluginType[];
    readonly Socket: string;
    readonly ProtocolScheme: string;
  };
  readonly Entrypoint: Texts;
  readonly WorkingDir: string;
  readonly User: { readonly UID: number; readonly GID: number };
  readonly Network: { readonly Type: string };
  readonly Linux: {
    readonly Capabilities: Texts;
    readonly AllowAllDevices: boolean;
    readonly Devices: readonly PluginDevice[] | null;
  };
  readonly PropagatedMount: string;
  readonly IpcHost: boolean;
  readonly PidHost: boolean;
  readonly Mounts: readonly PluginMount[] | null;
  readonly Env: readonly PluginEnv[] | null;
  readonly Args: {
    readonly Name: string;
    readonly Description: string;
    readonly Settable: Texts;
    readonly Value: Texts;
  };
  readonly rootfs?: { readonly type: string; readonly diff_ids: readonly string[] };
}

/** Operators can change this of a configuration. */
export interface PluginSettings {
  readonly Mounts: readonly PluginMount[];
  readonly Env: readonly string[];
  readonly Args: readonly string[];
  readonly Devices: readonly PluginDevice[];
}

/** Something that a plugin may do on the host, which whoever installs it must grant. */
export interface PluginPrivilege {
  readonly Name: string;
  readonly Description: string;
  readonly Value: readonly string[];
}

/** An installed plugin, as it is kept on the disk. */
export interface PluginRecord {
  /** 64 hex digits. */
  readonly id: string;
  /** Familiar name with a tag: `team/volumes:latest`. */
  readonly name: string;
  /** The registry's name of it; '' for one that was made here. */
  readonly reference: string;
  readonly enabled: boolean;
  /** Name of the directory with its files, which an upgrade replaces. */
  readonly tree: string;
  readonly config: PluginConfig;
  readonly settings: PluginSettings;
  /** A call to it may take so long; 0: as long as calls to other plugins. */
  readonly timeoutSeconds: number;
}

/** The files of a plugin: those that its process sees, and those that a registry gets. */
export interface PluginFiles {
  readonly rootfs: string;
  /** Bytes of the configuration and of the manifest as a registry has them, and the blobs of the layers. */
  readonly content: string;
  /** Mounts that the plugin makes below its propagated mount appear here. */
  readonly propagated: string;
}

/** A managed plugin as its users call it. */
export interface RunningPlugin {
  readonly name: string;
  /** Path of its socket on the host. */
  readonly socket: string;
  readonly types: readonly PluginType[];
  readonly timeoutMs: number;
  /** Translates a path of the plugin to the host: the directory that it cannot leave, and the path in there. */
  place(path: string): { readonly root: string; readonly path: string };
  /** Directory on the host that the plugin sees as /run/docker/logging. */
  readonly loggingDir: string;
}

export interface ManagedPlugins {
  /**
   * Finds a plugin by its name, with or without tag.
   * @returns undefined when none of this name is installed. @throws EngineError conflict `plugin X found but disabled`.
   */
  find(name: string): RunningPlugin | undefined;
  /** Returns the names of the enabled plugins. */
  names(): readonly string[];
}
