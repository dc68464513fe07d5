/**
 * A real Prometheus that reads `/metrics` of the API, with the alerts and the dashboard of packaging/. Every query of
 * the dashboard has to find something.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { freePort } from '../support/free-port.js';
import { call, callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

/** This file is in dist/test/daemon. */
const PACKAGING = fileURLToPath(new URL('../../../packaging/', import.meta.url));
const RULES = join(PACKAGING, 'prometheus/engined.rules.yml');
/** Grafana puts these in the places of its variables. */
const VARIABLES = new Map([
  ['$instance', '.*'],
  ['$container', '.*'],
  ['$__rate_interval', '1m'],
]);

interface Dashboard {
  readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
}

interface QueryResult {
  readonly status: string;
  readonly error?: string;
  readonly data?: { readonly result: readonly { readonly value: readonly [number, string] }[] };
}

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'prometheus-'));
let engine: Engine;
let image: string;
let prometheus: string;
let monitoring: string;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  const port = await freePort();
  monitoring = join(directory, 'monitoring.sock');
  const sockets = [
    { host: `tcp://127.0.0.1:${port}`, allow: ['GET /metrics'] },
    { host: `unix://${monitoring}`, allow: ['GET /version'] },
  ];
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ file: { sockets } })));
  prometheus = await startPrometheus(`127.0.0.1:${port}`);
});

after(() => cleanup.run());

async function startPrometheus(target: string): Promise<string> {
  const address = `127.0.0.1:${await freePort()}`;
  const config = {
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: [RULES],
    scrape_configs: [{ job_name: 'engined', static_configs: [{ targets: [target] }] }],
  };
  // JSON is YAML, too.
  writeFileSync(join(directory, 'prometheus.yml'), JSON.stringify(config));
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(directory, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      `--web.listen-address=${address}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (log += text));
  cleanup.add(async () => {
    if (child.exitCode !== null) return;
    child.kill();
    await once(child, 'exit');
  });
  await waitFor(
    () => `Prometheus to be ready: ${log}`,
    async () => {
      assert.equal(child.exitCode, null, log);
      return (await fetch(`http://${address}/-/ready`).catch(() => undefined))?.ok;
    },
  );
  return `http://${address}`;
}

/** The values that a query has now. */
async function query(expr: string): Promise<number[]> {
  const reply = await fetch(`${prometheus}/api/v1/query?query=${encodeURIComponent(expr)}`);
  const { status, error, data } = (await reply.json()) as QueryResult;
  assert.equal(status, 'success', `${expr}: ${error}`);
  return (data?.result ?? []).map(({ value }) => Number(value[1]));
}

function dashboardQueries(): string[] {
  const { panels } = JSON.parse(readFileSync(join(PACKAGING, 'grafana/engined.json'), 'utf8')) as Dashboard;
  return panels.flatMap(({ targets = [] }) =>
    targets.map(({ expr }) => {
      const filled = [...VARIABLES].reduce((text, [name, value]) => text.replaceAll(name, value), expr);
      assert.ok(!filled.includes('$'), `a variable that nobody fills: ${filled}`);
      return filled;
    }),
  );
}

test('the alerts are well-formed, and fire when they have to', () => {
  execFileSync('promtool', ['check', 'rules', RULES], { stdio: 'pipe' });
  const copy = join(directory, 'rules');
  cpSync(join(PACKAGING, 'prometheus'), copy, { recursive: true });
  execFileSync('promtool', ['test', 'rules', join(copy, 'engined.rules.test.yml')], { stdio: 'pipe' });
});

test('every query of the dashboard finds something, and the figures of a container are its own', async () => {
  // Counting begins with the first reading.
  await waitFor('the first reading', async () => (await query('up'))[0] === 1);
  const health = { Test: ['CMD', 'true'], Interval: 1_000_000_000, Retries: 1 };
  const limits = { Memory: 64 * 1024 * 1024 };
  // It works for a moment, so that there is time of a processor to count, and no longer.
  const work = 'echo hello; i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; sleep 1000 & wait';
  const body = { Image: image, Cmd: ['sh', '-c', work], Healthcheck: health };
  await callJson(engine.socketPath, 'POST', '/containers/create?name=busy', { json: { ...body, HostConfig: limits } });
  await callJson(engine.socketPath, 'POST', '/containers/busy/start');
  await callJson(engine.socketPath, 'POST', '/containers/create?name=ended', {
    json: { Image: image, Cmd: ['false'] },
  });
  await callJson(engine.socketPath, 'POST', '/containers/ended/start');
  for (const expr of dashboardQueries())
    await waitFor(`data of ${expr}`, async () => (await query(expr)).length > 0, 60_000, 200);

  // A reading that takes longer than a second fails, and leaves all queries without data until the next one.
  const isSo = (expr: string, holds: (value: number) => boolean): Promise<unknown> =>
    waitFor(`${expr} to be right`, async () => (await query(expr)).some(holds));
  await isSo('engine_container_cpu_seconds_total', (seconds) => seconds > 0.05 && seconds < 1000);
  await isSo('engine_container_memory_limit_bytes{container="busy"}', (bytes) => bytes === limits.Memory);
  await isSo('engine_container_processes{container="busy"}', (count) => count >= 1);
  await isSo('engine_container_health{state="healthy"}', (value) => value === 1);
  await isSo('engine_container_exit_code', (code) => code === 1);
  await isSo('engine_container_running{container="ended"}', (value) => value === 0);
  await isSo('up', (value) => value === 1);
  await isSo('engine_daemon_container_actions_seconds_count{action="start"}', (count) => count >= 2);
  await engineOk(engine, ['rm', '-f', 'busy']);
  await waitFor('the container to be gone', async () => (await query('engine_container_running')).length === 1);
});

test('the API serves the metrics to those who may read them, and they pass as well-formed', async () => {
  const reply = await call(engine.socketPath, 'GET', '/v1.51/metrics');
  assert.equal(reply.status, 200);
  const problems = execFileSync('sh', ['-c', 'promtool check metrics 2>&1 || true'], {
    input: reply.text,
    encoding: 'utf8',
  });
  const own = problems.split('\n').filter((line) => line.startsWith('engine_container_'));
  assert.deepEqual(own, []);
  assert.doesNotMatch(problems, /error while linting/);
  assert.equal((await call(monitoring, 'GET', '/metrics')).status, 403);
});
