/**
 * docker-py.js ENGINE RESULTS SOURCE STORE TEST...: runs files of docker-py's integration tests, from the directory
 * SOURCE, against `engined` or `dockerd` with a store, and writes what came of each test to the file RESULTS. To be run
 * in a sandbox of its own (scripts/docker-py.mjs).
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cleanup } from '../support/cleanup.js';
import { dockerd } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from '../support/image-builder.js';
import { startRegistry } from '../support/registry.js';
import { storeArgs } from '../support/tested-store.js';
import { type Outcome, versions } from './outcome.js';

/** Debian's, which has the modules of Debian's packages. */
const PYTHON = '/usr/bin/python3';
/** The images of Docker Hub that the tests pull. Here they are busybox, each with a file of its own. */
const IMAGES = ['alpine:3.10', 'alpine:latest', 'busybox:latest', 'hello-world:latest'];
/** A test in a report of the form xUnit 2: its attributes, and what is in it. */
const TEST_CASE = /<testcase ([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g;
const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', amp: '&' };

const [name = '', results = '', source = '', store = '', ...tests] = process.argv.slice(2);
const cleanup = new Cleanup();

function plain(text: string): string {
  return text
    .replaceAll(/&(lt|gt|quot|amp);/g, (whole, entity: string) => ENTITIES[entity] ?? whole)
    .replaceAll(/&#(?:x([0-9a-fA-F]+)|(\d+));/g, (_, hex: string | undefined, decimal: string | undefined) =>
      String.fromCodePoint(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16)),
    );
}

function attribute(attributes: string, key: string): string {
  return plain(new RegExp(`\\b${key}="([^"]*)"`).exec(attributes)?.[1] ?? '');
}

function outcomesIn(report: string): Outcome[] {
  return [...report.matchAll(TEST_CASE)].map(([, attributes = '', inside = '']) => {
    // `tests.integration.api_image_test.ListImagesTest`, or without a class
    const [file = '', ...rest] = attribute(attributes, 'classname').split('.').slice(2);
    const [, kind, about = ''] = /<(failure|error|skipped)\b([^>]*)>/.exec(inside) ?? [];
    const state = kind === undefined ? 'passed' : kind === 'skipped' ? 'skipped' : 'failed';
    const message = attribute(about, 'message');
    return {
      name: [file, ...rest, attribute(attributes, 'name')].join(' › '),
      state,
      ...(state === 'failed' && { message }),
    };
  });
}

function runTests(engine: Engine): Outcome[] {
  const report = join(mkdtempSync(join(tmpdir(), 'docker-py-')), 'report.xml');
  const paths = tests.map((test) => `tests/integration/${test}.py`);
  const args = ['-m', 'pytest', '-p', 'no:cacheprovider', `--junit-xml=${report}`, ...paths];
  const env = { ...process.env, DOCKER_HOST: engine.host, PYTHONPATH: source, PYTHONDONTWRITEBYTECODE: '1' };
  // Its exit status is that of the tests; what it says is in the log of the sandbox.
  spawnSync(PYTHON, args, { cwd: source, stdio: ['ignore', 'inherit', 'inherit'], env });
  if (!existsSync(report)) throw new Error('pytest made no report');
  return outcomesIn(readFileSync(report, 'utf8'));
}

try {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  const base = buildLayer(busyboxEntries());
  for (const reference of IMAGES) {
    const [repository = '', tag = ''] = reference.split(':');
    const layers = [base, buildLayer([{ path: 'reference', content: reference }])];
    const image = buildImage({ layers, config: { Cmd: ['sh'] } });
    await pushImage(registry.url, `library/${repository}`, tag, image);
  }
  const kind = name === 'dockerd' ? dockerd : engined;
  const args = [...storeArgs(name === 'dockerd' ? 'dockerd' : 'engined', store), '--registry-mirror', registry.url];
  const engine = await Engine.start(kind({ args }));
  cleanup.add(() => engine.discard());
  const outcomes = runTests(engine);
  writeFileSync(results, JSON.stringify({ engine: await versions(engine), outcomes }));
} finally {
  await cleanup.run();
}
