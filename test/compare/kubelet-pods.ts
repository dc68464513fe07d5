/** Scenarios of pods that run: what is in them, and how the kubelet reaches it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { waitFor } from '../support/wait.js';
import type { Kubelet } from './kubelet-process.js';
import { busybox, forever, httpd, isReady, shell, statusOf, type Scenario } from './kubelet-scene.js';

const MIB = 1024 ** 2;
const HOST_PORT = 18_080;
/** Streams of the kubelet in WebSockets: each message begins with the number of its channel. */
const STREAMS = 'v4.channel.k8s.io';
const STDOUT = 1;
const STDERR = 2;
const STATUS = 3;
const RESIZE = 4;
/** The kind of messages. */
const BINARY = 2;

const lines = (output: string): string => output.trim().split('\n').join(' | ');

const order: Scenario = {
  name: 'init containers, a sidecar and two containers begin in order and share a directory',
  async run(scene) {
    const { kubelet } = scene;
    const volumeMounts = [{ name: 'data', mountPath: '/data' }];
    const note = (name: string, rest = ''): string => `echo ${name} >> /data/order\n${rest}`;
    const own = (name: string, script: string, more = {}) => shell(scene, name, script, { volumeMounts, ...more });
    kubelet.apply('order', {
      terminationGracePeriodSeconds: 2,
      volumes: [{ name: 'data', emptyDir: {} }],
      initContainers: [
        own('first', note('first')),
        own('sidecar', forever(note('sidecar')), { restartPolicy: 'Always' }),
        own('second', note('second')),
      ],
      containers: [own('one', forever(note('container'))), own('two', forever(note('container')))],
    });
    const pod = await kubelet.podThat('ready', 'order', isReady);
    const ends = ['first', 'second'].map((name) => {
      const { exitCode, reason } = statusOf(pod, name).state?.terminated ?? {};
      return `${name} ${exitCode} ${reason}`;
    });
    const isBeside = statusOf(pod, 'sidecar').state?.running !== undefined;
    return `${lines(await kubelet.run('order', 'one', 'cat /data/order'))}; ${ends.join(', ')}; sidecar ${isBeside}`;
  },
};

const settings: Scenario = {
  name: 'environment, own fields, files of the host, user, groups, capabilities, sysctls, hosts and name servers',
  async run(scene) {
    const { kubelet, dir } = scene;
    mkdirSync(join(dir, 'shared'), { recursive: true });
    writeFileSync(join(dir, 'shared', 'told'), 'by the host\n');
    const script = [
      'echo $WORD $POD $LIMIT; pwd; hostname; id -u; id -g; id -G | tr " " "\\n" | sort -n | tr "\\n" " "; echo',
      'cat /shared/told; touch /shared/no 2>&1; touch /no 2>&1',
      'grep -E "Cap(Eff|Bnd)|NoNewPrivs|Seccomp:" /proc/self/status',
      'cat /proc/sys/net/ipv4/ip_unprivileged_port_start',
      'grep -v -E "^(#|fe|ff|::|127|10)" /etc/hosts; cat /etc/resolv.conf',
      'stat -c "%g %a" /empty; echo told > /dev/termination-log; exit 0',
    ].join('\n');
    kubelet.apply('settings', {
      restartPolicy: 'Never',
      hostAliases: [{ ip: '203.0.113.7', hostnames: ['friend'] }],
      dnsPolicy: 'None',
      dnsConfig: { nameservers: ['203.0.113.53'], searches: ['pods.test'], options: [{ name: 'ndots', value: '3' }] },
      securityContext: {
        runAsUser: 1000,
        runAsGroup: 2000,
        fsGroup: 3000,
        supplementalGroups: [4000],
        sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '99' }],
        seccompProfile: { type: 'RuntimeDefault' },
      },
      volumes: [
        { name: 'shared', hostPath: { path: join(dir, 'shared'), type: 'Directory' } },
        { name: 'empty', emptyDir: {} },
        { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
      ],
      containers: [
        shell(scene, 'main', script, {
          workingDir: '/etc',
          env: [
            { name: 'WORD', value: 'word' },
            { name: 'POD', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
            { name: 'LIMIT', valueFrom: { resourceFieldRef: { resource: 'limits.memory' } } },
          ],
          resources: { limits: { memory: '64Mi' }, requests: { memory: '32Mi' } },
          securityContext: {
            readOnlyRootFilesystem: true,
            allowPrivilegeEscalation: false,
            capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] },
          },
          volumeMounts: [
            { name: 'shared', mountPath: '/shared', readOnly: true },
            { name: 'empty', mountPath: '/empty' },
            { name: 'memory', mountPath: '/memory' },
          ],
        }),
      ],
    });
    const pod = await kubelet.podThat('ended', 'settings', ({ status }) =>
      ['Succeeded', 'Failed'].includes(status.phase ?? ''),
    );
    const { text: log } = await kubelet.call('GET', '/containerLogs/default/settings-node/main');
    return `${pod.status.phase} ${statusOf(pod, 'main').state?.terminated?.message?.trim()}; ${lines(log)}`;
  },
};

const limits: Scenario = {
  name: 'limits and requests are those of the control group',
  async run(scene) {
    const { kubelet } = scene;
    kubelet.apply('limits', {
      terminationGracePeriodSeconds: 2,
      containers: [
        shell(scene, 'main', forever(), {
          resources: { limits: { memory: '48Mi', cpu: '300m' }, requests: { memory: '16Mi', cpu: '100m' } },
        }),
      ],
    });
    await kubelet.podThat('ready', 'limits', isReady);
    const files = ['memory/memory.limit_in_bytes', 'cpu/cpu.cfs_quota_us', 'cpu/cpu.shares', 'memory.max', 'cpu.max'];
    const command = [
      'sh',
      '-c',
      `cat ${files.map((file) => `/sys/fs/cgroup/${file}`).join(' ')} /proc/1/oom_score_adj`,
    ];
    const output = await execIn(kubelet, '/exec/default/limits-node/main', command, 'output=1');
    // Files of the other version of control groups are not there.
    const found = output.split('\n').filter((line) => /^\d[\d ]*$/.test(line));
    if (!found.some((line) => Number(line) === 48 * MIB)) throw new Error(`no limit of 48 MiB in ${output}`);
    return found.join(', ');
  },
};

const probes: Scenario = {
  name: 'probes by HTTP, TCP and a command make a pod ready',
  async run(scene) {
    const { kubelet } = scene;
    const often = { periodSeconds: 1, timeoutSeconds: 5 };
    kubelet.apply('probes', {
      terminationGracePeriodSeconds: 2,
      containers: [
        {
          name: 'web',
          image: httpd(scene),
          startupProbe: { tcpSocket: { port: 80 }, failureThreshold: 60, ...often },
          livenessProbe: { httpGet: { path: '/index.html', port: 80 }, failureThreshold: 20, ...often },
          readinessProbe: { exec: { command: ['test', '-e', '/ready'] }, ...often },
        },
      ],
    });
    const isRunning = await kubelet.podThat('started', 'probes', ({ status }) => status.phase === 'Running');
    const before = statusOf(isRunning, 'web').ready;
    await kubelet.run('probes', 'web', 'touch /ready');
    const pod = await kubelet.podThat('ready', 'probes', isReady);
    await kubelet.run('probes', 'web', 'rm /ready');
    await kubelet.podThat('not ready any more', 'probes', (pod) => !isReady(pod));
    const { ready, restartCount } = statusOf(pod, 'web');
    return `ready ${before}, then ${ready}, then false; restarts ${restartCount}`;
  },
};

const logs: Scenario = {
  name: 'logs: whole, the last lines, with times, since, followed, of a tty, and of the container before',
  async run(scene) {
    const { kubelet } = scene;
    const script = forever('test -e /data/again || { touch /data/again; echo before; exit 3; }; seq 1 5; echo err >&2');
    kubelet.apply('logs', {
      terminationGracePeriodSeconds: 2,
      volumes: [{ name: 'data', emptyDir: {} }],
      containers: [
        shell(scene, 'main', script, { volumeMounts: [{ name: 'data', mountPath: '/data' }] }),
        shell(scene, 'tty', forever('echo on a terminal'), { tty: true }),
      ],
    });
    await kubelet.podThat('ready again', 'logs', (pod) => isReady(pod) && statusOf(pod, 'main').restartCount === 1);
    const get = async (query = '', container = 'main'): Promise<string> =>
      (await kubelet.call('GET', `/containerLogs/default/logs-node/${container}${query}`)).text;
    await waitFor('all lines', async () => (await get()).includes('err'));
    const stamped = (await get('?timestamps=true&tailLines=1')).replace(/^\d{4}-\d\d-\d\dT[\d:.]+Z /, 'TIME ');
    const followed = await kubelet.firstLines('/containerLogs/default/logs-node/main?follow=true', 6);
    const parts = [
      await get(),
      await get('?tailLines=2'),
      stamped,
      followed,
      await get('?previous=true'),
      await get('?sinceSeconds=600&limitBytes=4'),
      await get('', 'tty'),
    ];
    return parts.map(lines).join('; ');
  },
};

/** Runs a command over a stream, and returns its output, its errors, and how the kubelet says that it ended. */
async function execIn(
  kubelet: Kubelet,
  path: string,
  command: readonly string[],
  query: string,
  input?: string,
): Promise<string> {
  const args = command.map((word) => `command=${encodeURIComponent(word)}`).join('&');
  const client = await kubelet.stream(`${path}?${args}&${query}`, STREAMS);
  if (input !== undefined) client.send(BINARY, `\0${input}`);
  if (query.includes('tty')) client.send(BINARY, `${String.fromCharCode(RESIZE)}{"Width":101,"Height":37}`);
  const of = (channel: number): string[] =>
    client.frames
      .filter(({ payload }) => payload[0] === channel && payload.length > 1)
      .map(({ payload }) => payload.subarray(1).toString());
  await waitFor(
    () => `the end of ${command.join(' ')}: ${client.head} ${client.text}`,
    () => of(STATUS).length > 0 || client.isEnded,
  );
  client.destroy();
  const end = JSON.parse(of(STATUS)[0] ?? '{}') as { status?: string; details?: { causes?: { message: string }[] } };
  const said = [STDOUT, STDERR].map((channel) => of(channel).join('').trim());
  return [...said, end.status, end.details?.causes?.[0]?.message ?? 0].join(' ');
}

const streams: Scenario = {
  name: 'commands: output, errors, exit codes, input, a terminal; and forwarded ports',
  async run(scene) {
    const { kubelet } = scene;
    kubelet.apply('streams', { terminationGracePeriodSeconds: 2, containers: [{ name: 'web', image: httpd(scene) }] });
    await kubelet.podThat('ready', 'streams', isReady);
    const exec = (command: readonly string[], query: string, input?: string): Promise<string> =>
      execIn(kubelet, '/exec/default/streams-node/web', command, query, input);
    const parts = [
      await exec(['sh', '-c', 'echo out; echo err >&2; exit 5'], 'output=1&error=1'),
      await exec(['head', '-n1'], 'input=1&output=1&error=1', 'typed\n'),
      await exec(
        ['sh', '-c', 'tty; until stty size 2>/dev/null | grep .; do sleep 0.1; done'],
        'input=1&output=1&tty=1',
      ),
      await exec(['/no/such'], 'output=1&error=1'),
    ];
    const forward = await kubelet.stream('/portForward/default/streams-node?port=80', STREAMS);
    await waitFor('the port to be forwarded', () => forward.frames.length >= 2 || forward.isEnded);
    forward.send(BINARY, '\0GET /index.html HTTP/1.0\r\n\r\n');
    await waitFor(
      () => `an answer by the port: ${forward.head} ${forward.text}`,
      () => forward.text.includes('served'),
    );
    forward.destroy();
    return `${parts.join('; ')}; forwarded`;
  },
};

const network: Scenario = {
  name: 'network: pods reach each other, the host a port; a pod is in the network of the host',
  async run(scene) {
    const { kubelet } = scene;
    const spec = { terminationGracePeriodSeconds: 2 };
    kubelet.apply('server', {
      ...spec,
      containers: [{ name: 'web', image: httpd(scene), ports: [{ containerPort: 80, hostPort: HOST_PORT }] }],
    });
    const { status } = await kubelet.podThat('ready', 'server', isReady);
    kubelet.apply('client', { ...spec, containers: [shell(scene, 'main', forever())] });
    kubelet.apply('host', {
      ...spec,
      hostNetwork: true,
      hostPID: true,
      hostIPC: true,
      containers: [shell(scene, 'main', forever())],
    });
    kubelet.apply('shared', {
      ...spec,
      shareProcessNamespace: true,
      containers: [shell(scene, 'one', forever()), shell(scene, 'two', forever())],
    });
    for (const name of ['client', 'host', 'shared']) await kubelet.podThat('ready', name, isReady);
    const fetched = await kubelet.run('client', 'main', `wget -q -O - http://${status.podIP}/index.html`);
    const host = await kubelet.run('host', 'main', 'cat /proc/net/dev');
    const others = await kubelet.run('shared', 'one', 'pgrep sh');
    const socket = connect(HOST_PORT, '192.0.2.2');
    socket.write('GET /index.html HTTP/1.0\r\n\r\n');
    const byPort = await text(socket);
    const isHost = host.includes('machine0');
    const shells = others.trim().split(/\s+/).length;
    return `${fetched.trim()}, by the host ${/served/.test(byPort)}, of the host ${isHost}, shells ${shells}`;
  },
};

const figures: Scenario = {
  name: 'statistics: the summary, metrics of resources and of cadvisor have every container',
  async run(scene) {
    const { kubelet } = scene;
    kubelet.apply('figures', {
      terminationGracePeriodSeconds: 2,
      containers: [shell(scene, 'main', forever('head -c 3000000 /dev/zero > /file'))],
    });
    await kubelet.podThat('ready', 'figures', isReady);
    const summary = await waitFor(
      'the summary to have the pod',
      async () => {
        const { text } = await kubelet.call('GET', '/stats/summary');
        const { pods } = JSON.parse(text) as { pods: { podRef: { name: string } }[] };
        const found = pods.find(({ podRef }) => podRef.name === 'figures-node') as Summary | undefined;
        const main = found?.containers?.[0];
        return main?.rootfs?.usedBytes !== undefined && main.memory?.workingSetBytes !== undefined && found;
      },
      180_000,
      1000,
    );
    const [main] = summary.containers ?? [];
    const has = (part: Record<string, unknown> | undefined): string =>
      Object.keys(part ?? {})
        .filter((name) => name !== 'time')
        .toSorted()
        .join(' ');
    const metrics = async (path: string, name: string): Promise<boolean> =>
      new RegExp(`${name}\\{[^}]*figures-node[^}]*\\} [1-9]`).test((await kubelet.call('GET', path)).text);
    return [
      `CPU ${has(main?.cpu)}`,
      `memory ${has(main?.memory)}`,
      `rootfs ${has(main?.rootfs)}`,
      `logs ${has(main?.logs)}`,
      `network ${has(summary.network)}`,
      `pod ${has(summary.cpu)} ${has(summary.memory)}`,
      `wrote ${Number(main?.rootfs?.['usedBytes']) >= 3_000_000}`,
      `metrics ${await metrics('/metrics/resource', 'container_memory_working_set_bytes')}`,
      `cadvisor ${await metrics('/metrics/cadvisor', 'container_memory_working_set_bytes')}`,
      `network metrics ${await metrics('/metrics/cadvisor', 'container_network_receive_bytes_total')}`,
    ].join('; ');
  },
};

/** A pod in `/stats/summary`. */
interface Summary {
  readonly cpu?: Record<string, unknown>;
  readonly memory?: Record<string, unknown>;
  readonly network?: Record<string, unknown>;
  readonly containers?: readonly Record<'cpu' | 'memory' | 'rootfs' | 'logs', Record<string, unknown> | undefined>[];
}

const images: Scenario = {
  name: 'images: pulled always, when missing, or never; one that is not there',
  async run(scene) {
    const { kubelet, registry } = scene;
    const pod = (name: string, image: string, imagePullPolicy: string): void =>
      kubelet.apply(name, {
        terminationGracePeriodSeconds: 2,
        containers: [{ ...shell(scene, 'main', forever()), image, imagePullPolicy }],
      });
    const own = `${registry}/k8s-staging-cri-tools`;
    pod('pull-always', `${own}/test-image-1`, 'Always');
    pod('pull-missing', `${own}/test-image-2`, 'IfNotPresent');
    pod('pull-never', `${own}/test-image-3`, 'Never');
    pod('pull-none', `${own}/no-such-image`, 'IfNotPresent');
    pod('pull-invalid', `${busybox(scene)}:x`, 'IfNotPresent');
    const waiting = async (name: string, reason: string): Promise<string> => {
      await kubelet.podThat(reason, name, (pod) => {
        return pod.status.containerStatuses?.[0]?.state?.waiting?.reason === reason;
      });
      return reason;
    };
    await kubelet.podThat('ready', 'pull-always', isReady);
    await kubelet.podThat('ready', 'pull-missing', isReady);
    return [
      'two are ready',
      await waiting('pull-never', 'ErrImageNeverPull'),
      await waiting('pull-none', 'ImagePullBackOff'),
      await waiting('pull-invalid', 'InvalidImageName'),
    ].join(', ');
  },
};

export const PODS: readonly Scenario[] = [order, settings, limits, probes, logs, streams, network, figures, images];
