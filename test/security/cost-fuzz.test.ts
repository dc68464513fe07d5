/**
 * Sends expensive texts to everything that reads texts of others on the main thread, and to a daemon that must answer
 * others meanwhile. COST_CASES=1000000 runs longer, COST_SEED=7 runs others, and COST_REPORT names a file for the
 * slowest: `npm run fuzz` sets them.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { cook } from '../fuzz/expensive-text.js';
import { type CostlyCase, findCostly } from '../fuzz/cost.js';
import { Random } from '../fuzz/random.js';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngine } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, type CallOptions } from '../support/http.js';
import { longestPing, pingWhile } from '../support/ping.js';

const CASES = Number(process.env['COST_CASES'] ?? 25_000);
/** On a very busy machine fewer cases are tried; if COST_CASES is set, all of them are. */
const TIME_MS = process.env['COST_CASES'] === undefined ? 40_000 : Infinity;
const SEED = Number(process.env['COST_SEED'] ?? 1);
const REPORT = process.env['COST_REPORT'];
/** An explosion takes minutes; a slow machine may take some hundred milliseconds for the largest texts. */
const MAX_MS = 2000;
const SHOWN = 20;
const SENT = 25;

const cleanup = new Cleanup();
let engine: Engine;
let slowest: readonly CostlyCase[] = [];

before(async () => {
  engine = await startEngine(cleanup, engined());
});
after(() => {
  if (REPORT !== undefined) writeFileSync(REPORT, report());
  return cleanup.run();
});

function report(): string {
  const lines = slowest
    .slice(0, SHOWN)
    .map(({ target, recipe, ms }) => `${ms.toFixed(1).padStart(8)} ms  ${target.name}: ${JSON.stringify(recipe)}`);
  return (
    `${CASES} cases, seed ${SEED}; the slowest at their limits:\n${lines.join('\n')}\n` +
    `longest wait of _ping: ${longestPing().toFixed(0)} ms\n`
  );
}

test(`${CASES} cases in this process`, () => {
  slowest = findCostly(new Random(SEED), CASES, TIME_MS);
  for (const { target, recipe, ms } of slowest)
    assert.ok(ms < MAX_MS, `${target.name} took ${ms.toFixed(0)} ms: ${JSON.stringify(recipe)}`);
});

/** Half of a surrogate pair is nothing that a URL can hold. */
function encoded(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** How such a text reaches a daemon; undefined for what clients do not send. */
function requestFor(
  name: string,
  text: string,
): (CallOptions & { readonly method: string; readonly path: string }) | undefined {
  const filters = (what: string, value: string): string => `/${what}?all=1&filters=${encoded(value)}`;
  const create = (json: object): CallOptions & { method: string; path: string } => ({
    method: 'POST',
    path: '/containers/create',
    json: { Image: 'absent', ...json },
  });
  if (name === 'filters') return { method: 'GET', path: filters('networks', text) };
  if (name === 'pattern' || name === 'name filter')
    return { method: 'GET', path: filters('networks', JSON.stringify({ name: text.split(','), id: [text] })) };
  if (name === 'glob') return { method: 'GET', path: filters('images/json', JSON.stringify({ reference: [text] })) };
  if (name === 'reference') return { method: 'POST', path: `/images/absent/tag?repo=${encoded(text)}` };
  if (name === 'instant')
    return { method: 'POST', path: filters('containers/prune', JSON.stringify({ until: [text] })) };
  if (name === 'log tag' || name === 'env-regex')
    return create({ HostConfig: { LogConfig: { Type: 'json-file', Config: { tag: text, 'env-regex': text } } } });
  if (name === 'cpu list') return create({ HostConfig: { CpusetCpus: text, CpusetMems: text } });
  if (name === 'tmpfs options') return create({ HostConfig: { Tmpfs: { '/a': text } } });
  if (name === 'security options' || name === 'seccomp profile')
    return create({ HostConfig: { SecurityOpt: [`seccomp=${text}`] } });
  if (['JSON', 'create', 'update', 'commit'].includes(name))
    return { method: 'POST', path: '/containers/create', body: text, headers: { 'Content-Type': 'application/json' } };
  return undefined;
}

/** A body beyond its limits is refused before it is read to its end, which the client may see as a broken pipe. */
function refusedEarly(error: unknown): { readonly status: number } {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code !== 'EPIPE' && code !== 'ECONNRESET') throw error;
  return { status: 400 };
}

test('the slowest of them sent to a daemon, which answers others meanwhile', async () => {
  const sendable = slowest.flatMap(({ target, recipe }) => {
    // Escapes triple the length, and the head has a limit.
    const request = requestFor(target.name, cook(recipe, target.limit > 65_536 ? target.limit : 15_000));
    return request === undefined ? [] : [request];
  });
  for (const { method, path, ...options } of sendable.slice(0, SENT)) {
    const { status } = await pingWhile(engine, () =>
      call(engine.socketPath, method, path, options).catch(refusedEarly),
    );
    assert.ok(status >= 200 && status < 500, `${method} ${path.slice(0, 200)} gave ${status}`);
  }
});
