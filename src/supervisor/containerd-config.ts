/** Makes the configuration of the child containerd: its files, its socket, and only the plugins that run containers. */
import { join } from 'node:path';
import { invalid } from '../errors/engine-error.js';

export interface ContainerdPaths {
  /** Directory of everything below. */
  readonly dir: string;
  readonly config: string;
  readonly socket: string;
  readonly ttrpcSocket: string;
  readonly pidFile: string;
  readonly log: string;
  /** State of running tasks. */
  readonly state: string;
  /** containerd's own database. */
  readonly root: string;
  /** State of the runtime (runc), one directory per namespace below. */
  readonly runcRoot: string;
  /** The shims that serve one task after another, in a directory for each namespace. */
  readonly shims: string;
  /** Exits that were heard while containerd was away. */
  readonly heardExits: string;
  /** The keeper of descriptors of init processes. */
  readonly keptInits: string;
}

// sockaddr_un in unix(7), less the final zero.
const MAX_SOCKET_PATH = 107;

/** Returns the paths. @throws EngineError invalid when exec-root is too long for a socket below it. */
export function containerdPaths(execRoot: string, dataRoot: string): ContainerdPaths {
  const dir = join(execRoot, 'supervisor');
  const socket = join(dir, 'supervisor.sock');
  const ttrpcSocket = `${socket}.ttrpc`;
  if (Buffer.byteLength(ttrpcSocket) > MAX_SOCKET_PATH) {
    throw invalid(`exec-root ${execRoot} is too long: ${ttrpcSocket} exceeds ${MAX_SOCKET_PATH} bytes`);
  }
  return {
    dir,
    config: join(dir, 'supervisor.toml'),
    socket,
    ttrpcSocket,
    pidFile: join(dir, 'supervisor.pid'),
    log: join(dir, 'supervisor.log'),
    state: join(dir, 'state'),
    root: join(dataRoot, 'supervisor'),
    runcRoot: join(execRoot, 'runtime-runc'),
    shims: join(dir, 'shims'),
    heardExits: join(dir, 'heard-exits'),
    keptInits: join(dir, 'inits'),
  };
}

/** Returns the directories in which containerd has one directory for each task of a namespace. */
export function taskDirs({ state, root }: ContainerdPaths, namespace: string): string[] {
  return [state, root].map((dir) => taskDir(dir, namespace));
}

/** Returns the directory in `dir`, which is containerd's root or state, of the tasks of a namespace. */
export function taskDir(dir: string, namespace: string): string {
  return join(dir, 'io.containerd.runtime.v2.task', namespace);
}

// Image storage is ours, so containerd's goes; the snapshotter native stays, since its database insists on one.
// Statistics and out-of-memory events come from the shims; the monitor would send the latter a second time.
const unusedByEngine = [
  'io.containerd.monitor.v1.cgroups',
  'io.containerd.snapshotter.v1.overlayfs',
  'io.containerd.differ.v1.walking',
  'io.containerd.service.v1.diff-service',
  'io.containerd.grpc.v1.diff',
  'io.containerd.grpc.v1.cri',
  // Since containerd 2.0 these have other names, and CRI consists of several.
  'io.containerd.monitor.task.v1.cgroups',
  'io.containerd.grpc.v1.sandbox-controllers',
  'io.containerd.cri.v1.images',
  'io.containerd.cri.v1.runtime',
  'io.containerd.podsandbox.controller.v1.podsandbox',
  'io.containerd.snapshotter.v1.erofs',
  'io.containerd.differ.v1.erofs',
  'io.containerd.mount-handler.v1.erofs',
  'io.containerd.image-verifier.v1.bindir',
  'io.containerd.transfer.v1.local',
  'io.containerd.grpc.v1.transfer',
  'io.containerd.ttrpc.v1.transfer',
  'io.containerd.streaming.v1.manager',
  'io.containerd.grpc.v1.streaming',
  'io.containerd.nri.v1.nri',
];
// These are legacy, need set-up, or act on their own (the restart monitor, the directory in /opt).
const unused = [
  'io.containerd.snapshotter.v1.aufs',
  'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.zfs',
  'io.containerd.internal.v1.opt',
  'io.containerd.internal.v1.restart',
  'io.containerd.monitor.container.v1.restart',
  'io.containerd.internal.v1.tracing',
  'io.containerd.tracing.processor.v1.otlp',
];

/**
 * The collector of garbage looks once a second whether anything was deleted. By default containerd waits fifty times as
 * long as a collection takes: before 1.7 these are 10 ms where there is next to nothing, and one processor in a hundred
 * is busy for ever. We ask for a collection that somebody waits for (leases.ts). CRI has more to collect, and the
 * default limits the time of that.
 */
const COLLECTOR = `
[plugins."io.containerd.gc.v1.scheduler"]
  pause_threshold = 0.0
`;

/**
 * Returns the text of config.toml, version 2: containerd reads it since 1.3, and 2.x translates it to its own version 3
 * and says so once (log-lines.ts keeps that to debug level). A version ignores names of plugins that it does not have.
 */
export function containerdConfig(
  paths: ContainerdPaths,
  options: { readonly criEnabled: boolean; readonly debug: boolean; readonly snapshotter?: string | undefined },
): string {
  const wanted = `io.containerd.snapshotter.v1.${options.snapshotter ?? ''}`;
  const disabled = (options.criEnabled ? unused : [...unused, ...unusedByEngine]).filter((plugin) => plugin !== wanted);
  // JSON's strings are TOML's basic strings.
  return `version = 2
root = ${JSON.stringify(paths.root)}
state = ${JSON.stringify(paths.state)}
disabled_plugins = ${JSON.stringify(disabled)}

[grpc]
  address = ${JSON.stringify(paths.socket)}
  max_recv_message_size = ${16 * 1024 * 1024}
  max_send_message_size = ${16 * 1024 * 1024}

[ttrpc]
  address = ${JSON.stringify(paths.ttrpcSocket)}

[debug]
  level = "${options.debug ? 'debug' : 'info'}"
  format = "json"
${options.criEnabled ? '' : COLLECTOR}`;
}
