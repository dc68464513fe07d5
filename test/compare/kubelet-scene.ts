/** The scene of scenarios with a kubelet, and parts that pods of several of them share. */
import type { Engine } from '../support/engine.js';
import { callJson } from '../support/http.js';
import type { ContainerStatus, Kubelet, Pod, PodSpec } from './kubelet-process.js';
import type { NodeProgram } from './kubernetes-node.js';

export interface Scene {
  readonly engine: Engine;
  readonly translator: NodeProgram;
  readonly kubelet: Kubelet;
  /** Files of the scenarios, under the same path for the engine. */
  readonly dir: string;
  /** `host:port` of a local registry with the images of critest. */
  readonly registry: string;
}

export interface Scenario {
  readonly name: string;
  /** Resolves with what came out, in one line that is the same with either engine. Throws what is wrong. */
  run(scene: Scene): Promise<string>;
}

export const busybox = ({ registry }: Scene): string => `${registry}/e2e-test-images/busybox:1.29-2`;
/** It serves `/index.html` on port 80. */
export const httpd = ({ registry }: Scene): string => `${registry}/e2e-test-images/httpd:2.4.39-4`;

/** A container of busybox that runs a script of the shell. */
export function shell(scene: Scene, name: string, script: string, more: PodSpec = {}): PodSpec {
  return { name, image: busybox(scene), command: ['sh', '-c', script], ...more };
}

/** A script that goes on until it is asked to end. */
export const forever = (script = ':'): string =>
  `${script}\ntrap 'exit 0' TERM\nwhile :; do sleep 1000 & wait $!; done`;

/** The status of a container of a pod. Throws when there is none. */
export function statusOf(pod: Pod, container: string): ContainerStatus {
  const { containerStatuses = [], initContainerStatuses = [] } = pod.status;
  const found = [...containerStatuses, ...initContainerStatuses].find(({ name }) => name === container);
  if (found === undefined) throw new Error(`no status of ${container} in ${JSON.stringify(pod.status)}`);
  return found;
}

export const isReady = (pod: Pod): boolean =>
  pod.status.phase === 'Running' &&
  (pod.status.containerStatuses?.length ?? 0) > 0 &&
  pod.status.containerStatuses?.every(({ ready }) => ready) === true;

/** How a container ended, as `exit code reason`. */
export function endOf(status: ContainerStatus): string {
  const end = status.state?.terminated ?? status.lastState?.terminated;
  return end === undefined ? 'no end' : `${end.exitCode} ${end.reason ?? 'without a reason'}`;
}

/** The identities of all containers of a pod and how often they were restarted; equal when none of them was. */
export function identities(pod: Pod): string {
  return (pod.status.containerStatuses ?? [])
    .map(({ name, containerID, restartCount }) => `${name} ${containerID} ${restartCount}`)
    .toSorted()
    .join(', ');
}

/** A container in a list of the engine. */
interface Listed {
  readonly Id: string;
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

/** The engine's containers of a pod, sandbox and ended ones too. */
export async function engineContainers({ engine }: Scene, name: string): Promise<readonly Listed[]> {
  const filters = JSON.stringify({ label: [`io.kubernetes.pod.name=${name}-node`] });
  return callJson(engine.socketPath, 'GET', `/containers/json?all=1&filters=${encodeURIComponent(filters)}`);
}
