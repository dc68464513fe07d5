/**
 * The table of builds: what this engine makes of each is what dockerd 28.5 makes of it. Where it is not, differences.ts
 * says why; a case that is there and does not differ any more fails, so that the list only shrinks.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../../support/cleanup.js';
import { buildxPlugins } from '../../support/dockerd.js';
import { type EngineWithImage, startEngineWithImage } from '../../support/engine-with-image.js';
import { buildClassic, buildWithBuildx, type CaseRecord, digestOf } from './build-cases.js';
import { BASE, type TableCase } from './case.js';
import { CASES, CLASSIC_CASES } from './cases.js';
import { CLASSIC_DIFFERENCES, DIFFERENCES } from './differences.js';

const cleanup = new Cleanup();
let under: EngineWithImage;
before(async () => {
  under = await startEngineWithImage(cleanup);
  assert.equal(under.image, BASE);
});
after(() => cleanup.run());

type Row = { readonly name: string; readonly case: string } & CaseRecord;

/** Reads the rows by name. This file is in dist/test/build/table. */
function recorded(file: string): ReadonlyMap<string, Row> {
  const text = readFileSync(new URL(`../../../../test/build/table/${file}`, import.meta.url), 'utf8');
  return new Map((JSON.parse(text) as readonly Row[]).map((row) => [row.name, row]));
}

/** runc says this since version 1.2, and the peer has another version than the tests may have. */
const OF_THE_RUNTIME = 'error during container init: ';
const comparable = (record: CaseRecord | undefined): CaseRecord | undefined =>
  record && 'error' in record ? { ...record, error: record.error.replace(OF_THE_RUNTIME, '') } : record;

function compare(
  file: string,
  cases: readonly TableCase[],
  differences: ReadonlyMap<string, string>,
  build: () => Promise<ReadonlyMap<string, CaseRecord>>,
): void {
  const rows = recorded(file);
  let built: ReadonlyMap<string, CaseRecord>;
  before(async () => void (built = await build()));
  for (const one of cases) {
    test(one.name, () => {
      const row = rows.get(one.name);
      assert.ok(row, 'nothing is recorded');
      assert.equal(row.case, digestOf(one), 'another definition of this case is recorded');
      const { name, case: _, ...recorded } = row;
      const theirs = comparable(recorded);
      const ours = comparable(built.get(name));
      if (differences.has(name)) assert.notDeepEqual(ours, theirs, 'the case does not differ any more');
      else assert.deepEqual(ours, theirs);
    });
  }
  test('every difference is of a case that is there', () => {
    const names = new Set(cases.map(({ name }) => name));
    assert.equal(names.size, cases.length);
    assert.deepEqual(
      [...differences.keys()].filter((name) => !names.has(name)),
      [],
    );
  });
}

describe(
  'builds with buildx are those of dockerd',
  {
    skip: buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs',
  },
  () => {
    compare('recorded.json', CASES, DIFFERENCES, () => buildWithBuildx(under.engine, CASES));
  },
);

describe('builds by POST /build are those of dockerd', () => {
  compare('recorded-classic.json', CLASSIC_CASES, CLASSIC_DIFFERENCES, () => buildClassic(under.engine, CLASSIC_CASES));
});
