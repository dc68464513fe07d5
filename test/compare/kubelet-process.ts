/** A kubelet without a cluster: it takes its pods from files of a directory, and is asked by its own API. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { WebSocketClient } from '../support/websocket-client.js';
import { waitFor } from '../support/wait.js';
import type { KubernetesNode, NodeProgram } from './kubernetes-node.js';

const PORT = 10_250;
/** The address of a sandbox (scripts/sandbox.mjs). */
const ADDRESS = '192.0.2.2';
export const NODE_NAME = 'node';
const CGROUPS = '/sys/fs/cgroup';
/**
 * The kubelet wants the kernel to be set so. It reads these values from files that hide the kernel's, because a test
 * must not set a machine to restart when its kernel stumbles.
 */
const TUNABLES: Readonly<Record<string, string>> = {
  'vm/overcommit_memory': '1',
  'vm/panic_on_oom': '0',
  'kernel/panic': '10',
  'kernel/panic_on_oops': '1',
  'kernel/keys/root_maxkeys': '1000000',
  'kernel/keys/root_maxbytes': '25000000',
};

/** The states of a container that the kubelet tells. */
export interface ContainerState {
  readonly waiting?: { readonly reason?: string; readonly message?: string };
  readonly running?: { readonly startedAt?: string };
  readonly terminated?: { readonly exitCode: number; readonly reason?: string; readonly message?: string };
}

export interface ContainerStatus {
  readonly name: string;
  readonly ready: boolean;
  readonly restartCount: number;
  readonly containerID?: string;
  readonly state?: ContainerState;
  readonly lastState?: ContainerState;
}

export interface Pod {
  readonly metadata: { readonly name: string; readonly uid: string };
  readonly status: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly containerStatuses?: readonly ContainerStatus[];
    readonly initContainerStatuses?: readonly ContainerStatus[];
  };
}

/** Parts of a pod's specification; the names of fields are Kubernetes'. */
export type PodSpec = Readonly<Record<string, unknown>>;

export interface KubeletReply {
  readonly status: number;
  readonly text: string;
}

/** The certificate of the kubelet is its own. */
const agent = new Agent({ rejectUnauthorized: false, keepAlive: true });

export class Kubelet {
  readonly log: string;
  readonly #dir: string;
  readonly #cgroup: string;
  readonly #config: Record<string, unknown>;
  readonly #program: NodeProgram;

  constructor(node: KubernetesNode, dir: string, program: string) {
    this.#dir = dir;
    this.#cgroup = `${process.env['ENGINE_TEST_MARK'] ?? ''}kubelet`;
    for (const name of ['manifests', 'root', 'pods', 'logs']) mkdirSync(join(dir, name));
    this.#config = this.#configuration(node);
    hideKernel(node, dir);
    const command = [
      node.copied(program),
      `--config=${join(dir, 'kubelet.json')}`,
      `--root-dir=${join(dir, 'root')}`,
      `--cert-dir=${join(dir, 'pki')}`,
      `--hostname-override=${NODE_NAME}`,
      `--node-ip=${ADDRESS}`,
      '--v=2',
    ];
    this.#program = node.program('kubelet', command, async () => {
      const reply = await this.call('GET', '/healthz').catch(() => undefined);
      return reply?.text === 'ok';
    });
    this.log = this.#program.log;
  }

  /** Starts it with its configuration and `changes` to it. */
  async start(changes: Readonly<Record<string, unknown>> = {}): Promise<void> {
    this.#makeCgroups();
    writeFileSync(join(this.#dir, 'kubelet.json'), JSON.stringify({ ...this.#config, ...changes }));
    await this.#program.start();
  }

  stop(signal?: NodeJS.Signals): Promise<void> {
    return this.#program.stop(signal);
  }

  /** Makes a pod, or changes it. It gets the name `<name>-node`. */
  apply(name: string, spec: PodSpec, metadata: Readonly<Record<string, unknown>> = {}): void {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'default', ...metadata }, spec };
    const hidden = join(this.#dir, 'manifests', `.${name}`);
    writeFileSync(hidden, JSON.stringify(pod));
    renameSync(hidden, join(this.#dir, 'manifests', `${name}.json`));
  }

  /** Has a pod ended. */
  remove(name: string): void {
    rmSync(join(this.#dir, 'manifests', `${name}.json`));
  }

  async pods(): Promise<readonly Pod[]> {
    const { text } = await this.call('GET', '/pods');
    return (JSON.parse(text) as { items: Pod[] | null }).items ?? [];
  }

  async pod(name: string): Promise<Pod | undefined> {
    return (await this.pods()).find(({ metadata }) => metadata.name === `${name}-${NODE_NAME}`);
  }

  /** Resolves with the pod once `isSo` says that it is as wanted. */
  async podThat(what: string, name: string, isSo: (pod: Pod) => boolean, timeoutMs = 180_000): Promise<Pod> {
    let last: Pod | undefined;
    return waitFor(
      () => `${name} to be ${what}; it is ${JSON.stringify(last?.status)}`,
      async () => {
        last = await this.pod(name).catch(() => undefined);
        return last !== undefined && isSo(last) && last;
      },
      timeoutMs,
      500,
    );
  }

  call(method: string, path: string): Promise<KubeletReply> {
    return new Promise((resolve, reject) => {
      const outgoing = request({ host: '127.0.0.1', port: PORT, method, path, agent }, (message) => {
        let text = '';
        message
          .setEncoding('utf8')
          .on('data', (chunk: string) => (text += chunk))
          .on('end', () => resolve({ status: message.statusCode ?? 0, text }))
          .on('error', reject);
      });
      outgoing.once('error', reject).end();
    });
  }

  /** The first lines of an answer that does not end. */
  firstLines(path: string, count: number): Promise<string> {
    return new Promise((resolve, reject) => {
      const outgoing = request({ host: '127.0.0.1', port: PORT, path, agent }, (message) => {
        let text = '';
        message.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
          if (text.split('\n').length <= count) return;
          outgoing.destroy();
          resolve(text);
        });
        message.once('end', () => reject(new Error(`only this came: ${text}`)));
      });
      outgoing.once('error', reject).end();
    });
  }

  /** Runs a command in a container and returns what it wrote. */
  async run(name: string, container: string, command: string): Promise<string> {
    const path = `/run/default/${name}-${NODE_NAME}/${container}?cmd=${encodeURIComponent(command)}`;
    const { status, text } = await this.call('POST', path);
    if (status !== 200) throw new Error(`${command} in ${name}: ${status} ${text}`);
    return text;
  }

  /** A WebSocket to a stream of the kubelet, in the format that `protocol` names. */
  async stream(path: string, protocol: string): Promise<WebSocketClient> {
    const socket = connect({ host: '127.0.0.1', port: PORT, rejectUnauthorized: false });
    await once(socket, 'secureConnect');
    return WebSocketClient.over(socket, path, { 'Sec-WebSocket-Protocol': protocol, Host: `127.0.0.1:${PORT}` });
  }

  #configuration(node: KubernetesNode): Record<string, unknown> {
    return {
      kind: 'KubeletConfiguration',
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      containerRuntimeEndpoint: `unix://${node.socket}`,
      cgroupDriver: 'cgroupfs',
      cgroupRoot: `/${this.#cgroup}`,
      failCgroupV1: false,
      failSwapOn: false,
      protectKernelDefaults: true,
      staticPodPath: join(this.#dir, 'manifests'),
      podLogsDir: join(this.#dir, 'pods'),
      address: '127.0.0.1',
      port: PORT,
      healthzPort: 0,
      authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
      authorization: { mode: 'AlwaysAllow' },
      oomScoreAdj: 0,
      volumePluginDir: join(this.#dir, 'root', 'volume-plugins'),
      fileCheckFrequency: '1s',
      syncFrequency: '5s',
      evictionHard: { 'memory.available': '1Mi' },
      imageGCHighThresholdPercent: 100,
    };
  }

  /** It wants its group to be there, which is one in each hierarchy of version 1. The sandbox removes it. */
  #makeCgroups(): void {
    const entries = readdirSync(CGROUPS, { withFileTypes: true });
    const roots = entries.some(({ name }) => name === 'cgroup.controllers')
      ? [CGROUPS]
      : entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(CGROUPS, name));
    for (const root of roots) mkdirSync(join(root, this.#cgroup), { recursive: true });
  }
}

/** Hides settings of the kernel, and a directory that the kubelet links logs in, whatever it is told. */
function hideKernel(node: KubernetesNode, dir: string): void {
  const mount = (...args: string[]): void => {
    const [program, ...all] = node.command(['mount', ...args]);
    execFileSync(program, all);
  };
  mount('--bind', join(dir, 'logs'), '/var/log');
  for (const [path, value] of Object.entries(TUNABLES)) {
    const file = join(dir, path.replaceAll('/', '.'));
    writeFileSync(file, `${value}\n`);
    mount('--bind', file, `/proc/sys/${path}`);
  }
}
