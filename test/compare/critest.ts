/**
 * critest.js ENGINE RESULTS CRITEST CRI-DOCKERD [FOCUS]: runs the validation tests of the Container Runtime Interface
 * through cri-dockerd against `engined` or `dockerd`, and writes what came of each test to the file RESULTS. A regular
 * expression FOCUS takes the tests whose names it matches. To be run in a sandbox of its own (scripts/critest.mjs).
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cleanup } from '../support/cleanup.js';
import { dockerd } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';
import { PAUSE, pushCritestImages } from './critest-images.js';
import { type Outcome, versions } from './outcome.js';

/** One test in the report of ginkgo, the program that critest's tests are written with. */
interface SpecReport {
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly State: string;
  readonly Failure?: { readonly Message: string };
}

/** Debian's plugins of the Container Network Interface. */
const CNI_PLUGINS = '/usr/lib/cni';
const CNI_USED = ['bridge', 'host-local', 'portmap', 'loopback'];
/** As docs/kubernetes.md says; of the cgroup drivers that one which needs no systemd. */
const FLAGS = ['--ip-forward-no-drop', '--live-restore'];
/** Where critest pulls from. Both are names of a registry on loopback here, which speaks HTTP on its usual port. */
const REGISTRIES = ['registry.k8s.io', 'gcr.io'];
const INSECURE = REGISTRIES.map((host) => `--insecure-registry=${host}`);
const HTTP_PORT = 80;
const LINES = 40;

const [name, results = '', critest = '', criDockerd = '', focus] = process.argv.slice(2);
const cleanup = new Cleanup();
const dir = mkdtempSync(join(tmpdir(), 'critest-'));

/** Networks of pods as a node has them: a bridge, addresses, and ports of the host. */
function writeNetworks(): string {
  const directory = join(dir, 'net.d');
  mkdirSync(directory);
  const addresses = { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/16' }]], dataDir: join(dir, 'addresses') };
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

/** A copy in the temporary directory, which is there under this path in the root directory of the other engine too. */
function copied(program: string, into = dir): string {
  const path = join(into, program.slice(program.lastIndexOf('/') + 1));
  copyFileSync(program, path);
  return path;
}

/** Starts a program where the engine is: the mounts that it makes, and those of the engine, are for both. */
function beside(engine: Engine, log: string, command: readonly string[]): ChildProcess {
  const output = openSync(log, 'a');
  const args = ['--pdeathsig', 'KILL', 'nsenter', '--mount', '--target', String(engine.pid), '--', ...command];
  return spawn('setpriv', args, { stdio: ['ignore', output, output], env: { ...process.env, TMPDIR: dir } });
}

/** Has the engine, in its own mounts, find a local registry under the names that critest pulls from. */
async function answerAsRegistries(engine: Engine, registryUrl: string): Promise<void> {
  const hosts = join(dir, 'hosts');
  writeFileSync(hosts, `127.0.0.1 localhost ${REGISTRIES.join(' ')}\n`);
  execFileSync('nsenter', ['--mount', '--target', String(engine.pid), '--', 'mount', '--bind', hosts, '/etc/hosts']);
  const server = createServer((client) => {
    const upstream = connect(Number(new URL(registryUrl).port), '127.0.0.1');
    client.pipe(upstream).pipe(client);
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  });
  server.listen(HTTP_PORT, '127.0.0.1');
  await once(server, 'listening');
  cleanup.add(async () => void server.close());
}

const tail = (log: string): string => readFileSync(log, 'utf8').split('\n').slice(-LINES).join('\n');

async function startTranslator(engine: Engine): Promise<string> {
  const [socket, log, plugins] = [join(dir, 'cri.sock'), join(dir, 'cri-dockerd.log'), join(dir, 'cni')];
  mkdirSync(plugins);
  for (const plugin of CNI_USED) copied(join(CNI_PLUGINS, plugin), plugins);
  const child = beside(engine, log, [
    copied(criDockerd),
    `--docker-endpoint=${engine.host}`,
    `--container-runtime-endpoint=unix://${socket}`,
    `--cri-dockerd-root-directory=${join(dir, 'translator')}`,
    '--streaming-bind-addr=127.0.0.1:0',
    '--network-plugin=cni',
    `--cni-bin-dir=${plugins}`,
    `--cni-conf-dir=${writeNetworks()}`,
    `--cni-cache-dir=${join(dir, 'cni-cache')}`,
    `--pod-infra-container-image=${PAUSE}`,
  ]);
  const ended = once(child, 'exit');
  cleanup.add(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  await waitFor('the socket of cri-dockerd', () => {
    if (child.exitCode !== null) throw new Error(`cri-dockerd ended at once: ${tail(log)}`);
    return existsSync(socket);
  });
  return socket;
}

async function runTests(socket: string, engine: Engine): Promise<Outcome[]> {
  const [log, report] = [join(dir, 'critest.log'), join(dir, 'report.json')];
  const child = beside(engine, log, [
    copied(critest),
    `-runtime-endpoint=unix://${socket}`,
    `-config=${join(dir, 'none.yaml')}`,
    `-ginkgo.json-report=${report}`,
    '-ginkgo.seed=1',
    '-ginkgo.no-color',
    ...(focus === undefined ? [] : [`-ginkgo.focus=${focus}`]),
  ]);
  await once(child, 'exit');
  if (!existsSync(report)) throw new Error(`critest made no report: ${tail(log)}`);
  const suites = JSON.parse(readFileSync(report, 'utf8')) as { SpecReports: SpecReport[] }[];
  return suites
    .flatMap(({ SpecReports }) => SpecReports)
    .filter(({ LeafNodeType }) => LeafNodeType === 'It')
    .map(({ ContainerHierarchyTexts, LeafNodeText, State, Failure }) => ({
      name: [...(ContainerHierarchyTexts ?? []), LeafNodeText].join(' › '),
      state: State,
      ...(Failure === undefined ? {} : { message: Failure.Message }),
    }));
}

try {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  await pushCritestImages(registry.url);
  const args = [...FLAGS, ...INSECURE];
  const engine = await Engine.start(name === 'dockerd' ? dockerd({ args }) : engined({ args }));
  cleanup.add(() => engine.discard());
  await answerAsRegistries(engine, registry.url);
  const socket = await startTranslator(engine);
  const outcomes = await runTests(socket, engine);
  writeFileSync(results, JSON.stringify({ engine: await versions(engine), outcomes }));
} finally {
  await cleanup.run();
}
