/**
 * A node of Kubernetes without its kubelet: an engine, and cri-dockerd in front of it, which translates the Container
 * Runtime Interface. Its programs run in the mounts of the engine, as on one machine.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, copyFileSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Engine } from '../support/engine.js';
import { waitFor } from '../support/wait.js';

/** Debian's plugins of the Container Network Interface. */
const CNI_PLUGINS = '/usr/lib/cni';
const CNI_USED = ['bridge', 'host-local', 'portmap', 'loopback'];
/** As docs/kubernetes.md says; of the cgroup drivers that one which needs no systemd. */
export const ENGINE_FLAGS = ['--ip-forward-no-drop', '--live-restore'];
const LINES = 40;

/** The end of a log, for messages. */
export const tail = (log: string): string => readFileSync(log, 'utf8').split('\n').slice(-LINES).join('\n');

/** A program of the node, which may be ended and started again. */
export interface NodeProgram {
  /** Resolves when it serves. */
  start(): Promise<void>;
  /** Resolves when it is gone. */
  stop(signal?: NodeJS.Signals): Promise<void>;
  readonly log: string;
}

export class KubernetesNode {
  /** Where cri-dockerd listens. */
  readonly socket: string;
  readonly #dir: string;
  readonly #engine: Engine;
  /** The mounts of the engine that was there first. The next one of dockerd has mounts of its own. */
  readonly #mounts: number;

  /** @param dir is there under this path in the mounts of the engine too. */
  constructor(engine: Engine, dir: string) {
    this.#dir = dir;
    this.#engine = engine;
    this.socket = join(dir, 'cri.sock');
    this.#mounts = openSync(`/proc/${engine.pid}/ns/mnt`, 'r');
  }

  /** A command line that runs a program in the mounts of the engine. */
  command(command: readonly string[]): readonly [string, ...string[]] {
    return ['nsenter', `--mount=/proc/${process.pid}/fd/${this.#mounts}`, '--', ...command];
  }

  /** A copy of a program which is there in the mounts of the engine too. */
  copied(program: string, into = this.#dir): string {
    const path = join(into, program.slice(program.lastIndexOf('/') + 1));
    copyFileSync(program, path);
    return path;
  }

  /** Starts a program in the mounts of the engine. */
  spawn(log: string, command: readonly string[]): ChildProcess {
    const output = openSync(log, 'a');
    const env = { ...process.env, TMPDIR: this.#dir };
    const args = ['--pdeathsig', 'KILL', ...this.command(command)];
    const child = spawn('setpriv', args, { stdio: ['ignore', output, output], env });
    closeSync(output);
    return child;
  }

  /** A program that serves once `isReady` says so. */
  program(name: string, command: readonly string[], isReady: () => boolean | Promise<boolean>): NodeProgram {
    const log = join(this.#dir, `${name}.log`);
    let child: ChildProcess | undefined;
    return {
      log,
      start: async () => {
        const started = (child = this.spawn(log, command));
        await waitFor(`${name} to serve`, () => {
          if (started.exitCode !== null) throw new Error(`${name} ended at once: ${tail(log)}`);
          return isReady();
        });
      },
      stop: async (signal = 'SIGTERM') => {
        if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, 'exit');
        child.kill(signal);
        await ended;
      },
    };
  }

  /** cri-dockerd with plugins of the Container Network Interface, not started yet. */
  translator(criDockerd: string, pauseImage: string): NodeProgram {
    const plugins = join(this.#dir, 'cni');
    mkdirSync(plugins);
    for (const plugin of CNI_USED) this.copied(join(CNI_PLUGINS, plugin), plugins);
    const command = [
      this.copied(criDockerd),
      `--docker-endpoint=${this.#engine.host}`,
      `--container-runtime-endpoint=unix://${this.socket}`,
      `--cri-dockerd-root-directory=${join(this.#dir, 'translator')}`,
      '--streaming-bind-addr=127.0.0.1:0',
      '--network-plugin=cni',
      `--cni-bin-dir=${plugins}`,
      `--cni-conf-dir=${this.#writeNetworks()}`,
      `--cni-cache-dir=${join(this.#dir, 'cni-cache')}`,
      `--pod-infra-container-image=${pauseImage}`,
    ];
    const program = this.program('cri-dockerd', command, () => existsSync(this.socket));
    return {
      ...program,
      start: () => {
        // A killed one leaves its socket behind.
        rmSync(this.socket, { force: true });
        return program.start();
      },
    };
  }

  /** Lets go of the engine's mounts. */
  async close(): Promise<void> {
    closeSync(this.#mounts);
  }

  /** Networks of pods as a node has them: a bridge, addresses, and ports of the host. */
  #writeNetworks(): string {
    const directory = join(this.#dir, 'net.d');
    mkdirSync(directory);
    const ranges = [[{ subnet: '10.88.0.0/16' }]];
    const addresses = { type: 'host-local', ranges, dataDir: join(this.#dir, 'addresses') };
    const plugins = [
      {
        type: 'bridge',
        bridge: 'cni0',
        isGateway: true,
        ipMasq: true,
        ipam: { ...addresses, routes: [{ dst: '0.0.0.0/0' }] },
      },
      { type: 'portmap', capabilities: { portMappings: true }, snat: true },
    ];
    const list = { cniVersion: '0.4.0', name: 'pods', plugins };
    writeFileSync(join(directory, '10-pods.conflist'), JSON.stringify(list));
    return directory;
  }
}
