/** Scenarios that end the kubelet, cri-dockerd and the engine under running pods. */
import { join } from 'node:path';
import { writeFileSync, mkdirSync, existsSync } from 'node:fs';
import { callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';
import {
  endOf,
  engineContainers,
  forever,
  identities,
  isReady,
  shell,
  statusOf,
  type Scenario,
  type Scene,
} from './kubelet-scene.js';

/** The kubelet collects images every five minutes. */
const COLLECTION_MS = 600_000;
const GRACE = { terminationGracePeriodSeconds: 2 };
/** Pods that stay, by their names. */
const STAYS = ['stay-one', 'stay-two'];

async function makeStaying(scene: Scene): Promise<void> {
  const { kubelet } = scene;
  for (const name of STAYS)
    kubelet.apply(name, {
      ...GRACE,
      containers: [shell(scene, 'main', forever(`i=0; while :; do i=$((i + 1)); echo $i; sleep 0.2; done &`))],
    });
  for (const name of STAYS) await kubelet.podThat('ready', name, isReady);
}

async function staying({ kubelet }: Scene): Promise<string> {
  const parts: string[] = [];
  for (const name of STAYS) parts.push(identities(await kubelet.podThat('ready', name, isReady)));
  return parts.join('; ');
}

/** Tells what the pods that stay can do. Throws when one of them is another one, or lines of its log are missing. */
async function checkStaying(scene: Scene, before: string): Promise<string> {
  const { kubelet } = scene;
  const after = await staying(scene);
  if (after !== before) throw new Error(`pods that stay were ${before}, and are ${after}`);
  const [name = ''] = STAYS;
  const path = `/containerLogs/default/${name}-node/main`;
  const numbers = async (): Promise<number[]> => (await kubelet.call('GET', path)).text.trim().split('\n').map(Number);
  const seen = (await numbers()).length;
  const all = await waitFor('more lines', async () => {
    const found = await numbers();
    return found.length > seen && found;
  });
  const gap = all.findIndex((number, at) => number !== at + 1);
  if (gap !== -1) throw new Error(`line ${gap + 1} of the log is ${all[gap]}`);
  return `same containers, every line once, exec says ${(await kubelet.run(name, 'main', 'echo hello')).trim()}`;
}

/** Whether a pod that is made now becomes ready, and one that is taken away goes. */
async function checkNew(scene: Scene, name: string): Promise<string> {
  const { kubelet } = scene;
  kubelet.apply(name, { ...GRACE, containers: [shell(scene, 'main', forever())] });
  await kubelet.podThat('ready', name, isReady);
  kubelet.remove(name);
  await waitFor(`${name} to be gone`, async () => (await kubelet.pod(name)) === undefined, 180_000, 500);
  return 'a new pod comes and goes';
}

/** A scenario in which something happens to the node while two pods run. `pod` is made and taken away afterwards. */
function restart(name: string, pod: string, act: (scene: Scene) => Promise<unknown>): Scenario {
  return {
    name,
    async run(scene) {
      await makeStaying(scene);
      const before = await staying(scene);
      await act(scene);
      const made = await checkNew(scene, pod);
      // The kubelet has looked at all pods since then: before, it told what it knew.
      return `${await checkStaying(scene, before)}, ${made}`;
    },
  };
}

const meanwhile: Scenario = {
  name: 'a container that ends while the engine is away is started again afterwards',
  async run(scene) {
    const { kubelet, engine, dir } = scene;
    const told = join(dir, 'meanwhile');
    mkdirSync(told, { recursive: true });
    kubelet.apply('meanwhile', {
      ...GRACE,
      volumes: [{ name: 'told', hostPath: { path: told } }],
      containers: [
        shell(scene, 'main', 'while ! test -e /told/end; do sleep 0.1; done; rm /told/end; touch /told/ended; exit 4', {
          volumeMounts: [{ name: 'told', mountPath: '/told' }],
        }),
      ],
    });
    await kubelet.podThat('ready', 'meanwhile', isReady);
    await engine.stop('SIGKILL');
    writeFileSync(join(told, 'end'), '');
    await waitFor('the container to end', () => existsSync(join(told, 'ended')));
    await engine.start();
    const pod = await kubelet.podThat('started again', 'meanwhile', (pod) => {
      return isReady(pod) && statusOf(pod, 'main').restartCount === 1;
    });
    // dockerd does not know any more how it ended, and says 255.
    const end = endOf({ ...statusOf(pod, 'main'), state: {} });
    if (engine.name === 'engined' && end !== '4 Error') throw new Error(`it ended with 4, and not with ${end}`);
    return 'restarts 1';
  },
};

const collection: Scenario = {
  name: 'images that no pod has are collected, and those of pods are kept',
  async run(scene) {
    const { kubelet, engine, registry } = scene;
    const unused = `${registry}/k8s-staging-cri-tools/test-image-latest`;
    kubelet.apply('unused', { ...GRACE, containers: [{ ...shell(scene, 'main', forever()), image: unused }] });
    await kubelet.podThat('ready', 'unused', isReady);
    kubelet.remove('unused');
    await waitFor(
      'its containers to be gone',
      async () => (await engineContainers(scene, 'unused')).length === 0,
      180_000,
      500,
    );
    await makeStaying(scene);
    const names = async (): Promise<string[]> => {
      const images = await callJson<{ RepoTags: string[] | null }[]>(engine.socketPath, 'GET', '/images/json');
      return images.flatMap(({ RepoTags }) => RepoTags ?? []);
    };
    await kubelet.stop();
    // Any disk has more than 1 % in use. The kubelet collects as it starts, but spares what it finds then, and again
    // after five minutes.
    await kubelet.start({ imageGCHighThresholdPercent: 1, imageGCLowThresholdPercent: 0, imageMinimumGCAge: '1ms' });
    const isGone = async (): Promise<boolean> => !(await names()).some((name) => name.startsWith(unused));
    await waitFor('the image to go', isGone, COLLECTION_MS, 1000);
    const left = (await names()).map((name) => name.slice(name.indexOf('/') + 1));
    return `left: ${left
      .filter((name) => /busybox|pause/.test(name))
      .toSorted()
      .join(', ')}`;
  },
};

export const RESTARTS: readonly Scenario[] = [
  restart('the kubelet is ended and started', 'after-kubelet-end', async ({ kubelet }) => {
    await kubelet.stop();
    await kubelet.start();
  }),
  restart('the kubelet is killed and started', 'after-kubelet-kill', async ({ kubelet }) => {
    await kubelet.stop('SIGKILL');
    await kubelet.start();
  }),
  restart('cri-dockerd is killed and started', 'after-translator-kill', async ({ translator }) => {
    await translator.stop('SIGKILL');
    await translator.start();
  }),
  restart('the engine is ended and started, with live-restore', 'after-engine-end', async ({ engine }) => {
    await engine.stop();
    await engine.start();
  }),
  restart('the engine is killed and started, with live-restore', 'after-engine-kill', async ({ engine }) => {
    await engine.stop('SIGKILL');
    await engine.start();
  }),
  meanwhile,
  collection,
];
