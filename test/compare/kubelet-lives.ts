/** Scenarios of containers that end, and of pods that are changed and taken away. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
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

const GRACE = { terminationGracePeriodSeconds: 2 };

const ends: Scenario = {
  name: 'containers that end: codes, reasons and phases by the policy of restarts',
  async run(scene) {
    const { kubelet } = scene;
    const pod = (name: string, restartPolicy: string, script: string): void =>
      kubelet.apply(name, { ...GRACE, restartPolicy, containers: [shell(scene, 'main', script)] });
    pod('end-well', 'Never', 'exit 0');
    pod('end-badly', 'Never', 'exit 7');
    pod('end-signal', 'Never', 'sleep 1000 & kill -KILL $!; wait $!; exit $?');
    pod('end-once', 'OnFailure', 'exit 0');
    pod('end-missing', 'Never', 'exec /no/such');
    kubelet.apply('end-command', {
      ...GRACE,
      restartPolicy: 'Never',
      containers: [{ ...shell(scene, 'main', ''), command: ['/no/such'] }],
    });
    kubelet.apply('end-init', {
      ...GRACE,
      restartPolicy: 'Never',
      initContainers: [shell(scene, 'first', 'exit 9')],
      containers: [shell(scene, 'main', forever())],
    });
    const parts: string[] = [];
    const names = ['end-well', 'end-badly', 'end-signal', 'end-once', 'end-missing', 'end-command', 'end-init'];
    for (const name of names) {
      const pod = await kubelet.podThat('over', name, ({ status }) => /Succeeded|Failed/.test(status.phase ?? ''));
      parts.push(`${name} ${pod.status.phase} ${endOf(statusOf(pod, name === 'end-init' ? 'first' : 'main'))}`);
    }
    return parts.join(', ');
  },
};

const crash: Scenario = {
  name: 'a container that crashes is started again, later and later',
  async run(scene) {
    const { kubelet } = scene;
    kubelet.apply('crash', { ...GRACE, containers: [shell(scene, 'main', 'echo crashes; exit 3')] });
    const pod = await kubelet.podThat('backing off', 'crash', (pod) => {
      const [status] = pod.status.containerStatuses ?? [];
      return status?.state?.waiting?.reason === 'CrashLoopBackOff' && status.restartCount >= 2;
    });
    const dead = await waitFor(
      'the dead ones but one to be removed',
      async () => {
        const all = (await engineContainers(scene, 'crash')).filter(({ State }) => State === 'exited');
        return all.length === 1 && all.length;
      },
      180_000,
      1000,
    );
    return `${statusOf(pod, 'main').state?.waiting?.reason} ${endOf(statusOf(pod, 'main'))}, ${dead} dead one is kept`;
  },
};

const liveness: Scenario = {
  name: 'a failing liveness probe has a container killed and started again',
  async run(scene) {
    const { kubelet } = scene;
    const livenessProbe = { exec: { command: ['test', '-e', '/alive'] }, periodSeconds: 1, failureThreshold: 2 };
    const script = 'test -e /data/again || touch /alive; touch /data/again';
    kubelet.apply('liveness', {
      ...GRACE,
      volumes: [{ name: 'data', emptyDir: {} }],
      containers: [
        shell(scene, 'main', `${script}\ntouch /alive\nsleep 1000`, {
          livenessProbe,
          volumeMounts: [{ name: 'data', mountPath: '/data' }],
        }),
      ],
    });
    await kubelet.podThat('ready', 'liveness', isReady);
    await kubelet.run('liveness', 'main', 'rm /alive');
    const pod = await kubelet.podThat('started again', 'liveness', (pod) => {
      return isReady(pod) && statusOf(pod, 'main').restartCount === 1;
    });
    return `restarts 1, ${endOf({ ...statusOf(pod, 'main'), state: {} })}`;
  },
};

const memory: Scenario = {
  name: 'a container that takes more memory than its limit is killed for that',
  async run(scene) {
    const { kubelet } = scene;
    // A shell that keeps what it reads: of a pipeline only a child would be killed.
    const script = 'x=x; while :; do x=$x$x; done';
    kubelet.apply('memory', {
      ...GRACE,
      restartPolicy: 'Never',
      containers: [
        shell(scene, 'main', script, { resources: { limits: { memory: '16Mi' }, requests: { memory: '8Mi' } } }),
      ],
    });
    const pod = await kubelet.podThat('failed', 'memory', ({ status }) => status.phase === 'Failed');
    return `${pod.status.phase} ${endOf(statusOf(pod, 'main'))}`;
  },
};

const termination: Scenario = {
  name: 'a pod that is taken away: hooks, grace, and nothing of it is left',
  async run(scene) {
    const { kubelet, dir } = scene;
    const volumeMounts = [{ name: 'told', mountPath: '/told' }];
    const lifecycle = {
      postStart: { exec: { command: ['sh', '-c', 'echo begun >> /told/lines'] } },
      preStop: { exec: { command: ['sh', '-c', 'echo stopping >> /told/lines'] } },
    };
    const asked = "trap 'echo asked >> /told/lines; exit 0' TERM; while :; do sleep 1000 & wait $!; done";
    kubelet.apply('taken', {
      terminationGracePeriodSeconds: 3,
      volumes: [
        { name: 'told', hostPath: { path: join(dir, 'told'), type: 'DirectoryOrCreate' } },
        { name: 'empty', emptyDir: {} },
      ],
      containers: [
        shell(scene, 'polite', asked, { volumeMounts, lifecycle }),
        shell(scene, 'deaf', "trap '' TERM; while :; do sleep 1; done", {
          volumeMounts: [{ name: 'empty', mountPath: '/empty' }],
        }),
      ],
    });
    const pod = await kubelet.podThat('ready', 'taken', isReady);
    const began = Date.now();
    kubelet.remove('taken');
    await waitFor(
      'its containers to be gone',
      async () => (await engineContainers(scene, 'taken')).length === 0,
      180_000,
      500,
    );
    const isLate = Date.now() - began >= 3000;
    await waitFor('its files to be gone', () => !existsSync(join(dir, 'root', 'pods', pod.metadata.uid)), 180_000, 500);
    await waitFor(
      'its logs to be gone',
      () => !readdirSync(join(dir, 'pods')).some((name) => name.includes(pod.metadata.uid)),
      180_000,
      500,
    );
    await waitFor('its group to be gone', () => !groups().includes(pod.metadata.uid), 180_000, 1000);
    const address = join(dir, 'addresses', 'pods', pod.status.podIP ?? '');
    const told = readFileSync(join(dir, 'told', 'lines'), 'utf8')
      .trim()
      .split('\n')
      .join(' | ');
    return `${told}; waited for the deaf one ${isLate}; address is free ${!existsSync(address)}`;
  },
};

const groups = (): string =>
  execFileSync('find', ['/sys/fs/cgroup', '-type', 'd', '-name', '*pod*'], { encoding: 'utf8' });

const change: Scenario = {
  name: 'a changed file gives another pod, and only then',
  async run(scene) {
    const { kubelet } = scene;
    const apply = (word: string): void =>
      kubelet.apply('change', { ...GRACE, containers: [shell(scene, 'main', forever(`echo ${word}`))] });
    apply('first');
    const first = await kubelet.podThat('ready', 'change', isReady);
    apply('second');
    const second = await kubelet.podThat(
      'another',
      'change',
      (pod) => isReady(pod) && identities(pod) !== identities(first),
    );
    const { text } = await kubelet.call('GET', '/containerLogs/default/change-node/main');
    await waitFor(
      'the first one to be gone',
      async () => (await engineContainers(scene, 'change')).length === 2,
      180_000,
      500,
    );
    return `${text.trim()}, restarts ${statusOf(second, 'main').restartCount}`;
  },
};

const behind: Scenario = {
  name: 'what is killed and removed behind the back of the kubelet is made again',
  async run(scene) {
    const { kubelet, engine } = scene;
    kubelet.apply('behind', { ...GRACE, containers: [shell(scene, 'main', forever())] });
    const first = await kubelet.podThat('ready', 'behind', isReady);
    const own = async (type: string): Promise<string> => ofType(scene, type);
    await callJson(engine.socketPath, 'POST', `/containers/${await own('container')}/kill?signal=KILL`);
    const killed = await kubelet.podThat(
      'started again',
      'behind',
      (pod) => isReady(pod) && statusOf(pod, 'main').restartCount === 1,
    );
    await callJson(engine.socketPath, 'DELETE', `/containers/${await own('container')}?force=1`);
    const removed = await kubelet.podThat(
      'made again',
      'behind',
      (pod) => isReady(pod) && identities(pod) !== identities(killed),
    );
    await callJson(engine.socketPath, 'POST', `/containers/${await own('podsandbox')}/kill?signal=KILL`);
    const whole = await kubelet.podThat(
      'made again',
      'behind',
      (pod) => isReady(pod) && identities(pod) !== identities(removed),
    );
    const isOther = identities(first) !== identities(whole);
    return `killed: ${endOf({ ...statusOf(killed, 'main'), state: {} })}; all made again ${isOther}`;
  },
};

/** The running container of the pod `behind` that is one of this type. */
async function ofType(scene: Scene, type: string): Promise<string> {
  const all = await engineContainers(scene, 'behind');
  const found = all.find(({ State, Labels }) => State === 'running' && Labels['io.kubernetes.docker.type'] === type);
  if (found === undefined) throw new Error(`no ${type} runs: ${JSON.stringify(all)}`);
  return found.Id;
}

export const LIVES: readonly Scenario[] = [ends, crash, liveness, memory, termination, change, behind];
