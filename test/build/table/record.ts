/**
 * scripts/record-builds.mjs: builds the table with dockerd and writes down what it makes of each. Cases that are
 * recorded already are not built again: delete the records for that. To be run in a network
 * namespace of its own.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { startSeededRegistry } from '../../support/busybox-image.js';
import { Cleanup } from '../../support/cleanup.js';
import { dockerd } from '../../support/dockerd.js';
import { Engine } from '../../support/engine.js';
import { callJson } from '../../support/http.js';
import { pullOk } from '../../support/pulls.js';
import { buildByPost, buildWithBuildx, type CaseRecord, digestOf, recordsOf } from './build-cases.js';
import type { TableCase } from './case.js';
import { CASES, CLASSIC_CASES } from './cases.js';

/** This file is in dist/test/build/table. */
const HERE = new URL('../../../../test/build/table/', import.meta.url);

type Row = { readonly name: string; readonly case: string } & CaseRecord;

/** Builds the cases that are new or have changed, and writes down all. */
async function record(
  name: string,
  cases: readonly TableCase[],
  build: (cases: readonly TableCase[]) => Promise<ReadonlyMap<string, CaseRecord>>,
): Promise<void> {
  const file = new URL(name, HERE);
  const rows = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as readonly Row[]) : [];
  const known = new Map(rows.map((row) => [row.case, row]));
  const records = await build(cases.filter((one) => !known.has(digestOf(one))));
  const lines = cases.map((one) => {
    const result = records.get(one.name);
    if (cases === CASES && result && 'error' in result !== (one.fails === true))
      console.error(`'${one.name}' ${'error' in result ? `fails: ${result.error}` : 'does not fail'}`);
    const digest = digestOf(one);
    return JSON.stringify(known.get(digest) ?? { name: one.name, case: digest, ...result });
  });
  writeFileSync(file, `[\n${lines.join(',\n')}\n]\n`);
}

execFileSync('ip', ['link', 'set', 'lo', 'up']);
const cleanup = new Cleanup();
try {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  const engine = await Engine.start(dockerd());
  cleanup.add(() => engine.discard());
  await pullOk(engine, registry.reference);
  const path = `/images/${encodeURIComponent(registry.reference)}/tag?repo=test/busybox&tag=1.0`;
  await callJson(engine.socketPath, 'POST', path);
  await record('recorded.json', CASES, async (cases) => recordsOf(engine, await buildWithBuildx(engine, cases)));
  await record('recorded-classic.json', CLASSIC_CASES, async (cases) =>
    recordsOf(engine, await buildByPost(engine, cases, 1)),
  );
} finally {
  await cleanup.run();
}
