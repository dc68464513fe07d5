/**
 * critest.js ENGINE RESULTS CRITEST CRI-DOCKERD [FOCUS]: runs the validation tests of the Container Runtime Interface
 * through cri-dockerd against `engined` or `dockerd`, and writes what came of each test to the file RESULTS. A regular
 * expression FOCUS takes the tests whose names it matches. To be run in a sandbox of its own (scripts/critest.mjs).
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cleanup } from '../support/cleanup.js';
import { dockerd } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startRegistry } from '../support/registry.js';
import { PAUSE, pushCritestImages } from './critest-images.js';
import { ENGINE_FLAGS, KubernetesNode, tail } from './kubernetes-node.js';
import { type Outcome, versions } from './outcome.js';

/** One test in the report of ginkgo, the program that critest's tests are written with. */
interface SpecReport {
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly State: string;
  readonly Failure?: { readonly Message: string };
}

/** Where critest pulls from. Both are names of a registry on loopback here, which speaks HTTP on its usual port. */
const REGISTRIES = ['registry.k8s.io', 'gcr.io'];
const INSECURE = REGISTRIES.map((host) => `--insecure-registry=${host}`);
const HTTP_PORT = 80;

const [name, results = '', critest = '', criDockerd = '', focus] = process.argv.slice(2);
const cleanup = new Cleanup();
const dir = mkdtempSync(join(tmpdir(), 'critest-'));

/** Has the engine, in its own mounts, find a local registry under the names that critest pulls from. */
async function answerAsRegistries(node: KubernetesNode, registryUrl: string): Promise<void> {
  const hosts = join(dir, 'hosts');
  writeFileSync(hosts, `127.0.0.1 localhost ${REGISTRIES.join(' ')}\n`);
  const [program, ...args] = node.command(['mount', '--bind', hosts, '/etc/hosts']);
  execFileSync(program, args);
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

async function runTests(node: KubernetesNode): Promise<Outcome[]> {
  const [log, report] = [join(dir, 'critest.log'), join(dir, 'report.json')];
  const child = node.spawn(log, [
    node.copied(critest),
    `-runtime-endpoint=unix://${node.socket}`,
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
  const args = [...ENGINE_FLAGS, ...INSECURE];
  const engine = await Engine.start(name === 'dockerd' ? dockerd({ args }) : engined({ args }));
  cleanup.add(() => engine.discard());
  const node = new KubernetesNode(engine, dir);
  cleanup.add(() => node.close());
  await answerAsRegistries(node, registry.url);
  const translator = node.translator(criDockerd, PAUSE);
  cleanup.add(() => translator.stop('SIGKILL'));
  await translator.start();
  const outcomes = await runTests(node);
  writeFileSync(results, JSON.stringify({ engine: await versions(engine), outcomes }));
} finally {
  await cleanup.run();
}
