/**
 * The table of builds: what this engine makes of each is what dockerd 28.5 makes of it. Where it is not, differences.ts
 * says why; a case that is there and does not differ any more fails, so that the list only shrinks.
 * TABLE_WHOLE=1 builds by `POST /build` also what dockerd's two builders make equal (isToldByBuildx), and by buildx all
 * that fails (isAboutItsClient).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../../support/cleanup.js';
import { buildxPlugins } from '../../support/dockerd.js';
import { type EngineWithImage, startEngineWithImage } from '../../support/engine-with-image.js';
import { buildByPost, buildWithBuildx, type CaseRecord, digestOf, recordsOf } from './build-cases.js';
import { BASE, type TableCase } from './case.js';
import { CASES, CLASSIC_CASES, FILE_CASES } from './cases.js';
import { CLASSIC_DIFFERENCES, DIFFERENCES, FAILING_HERE } from './differences.js';

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

const withBuildx = recorded('recorded.json');
const classic = recorded('recorded-classic.json');

/**
 * Tells whether both builders of dockerd make the same files and configuration of a case. This engine has one builder,
 * which is compared with buildx's; what `POST /build` itself adds is seen by the cases that are left: requests with
 * arguments, labels and targets, errors, differences, and those of the configuration, whose history has other words.
 */
function isToldByBuildx(one: TableCase): boolean {
  const [theirs, other] = [withBuildx, classic].map((rows) => {
    const row = rows.get(one.name);
    if (row === undefined || 'error' in row) return undefined;
    const { WorkingDir: place, ...config } = row.config['config'] as Readonly<Record<string, unknown>>;
    // Only BuildKit writes down the place where commands are run when the Dockerfile does not give one.
    const written = { ...config, ...(place !== '/' && { place }) };
    return JSON.stringify({ ...row, config: { ...row.config, config: written }, history: undefined });
  });
  const isAsked = one.args ?? one.labels ?? one.target;
  return FILE_CASES.has(one) && !isAsked && theirs !== undefined && theirs === other;
}

const isWhole = process.env['TABLE_WHOLE'] !== undefined;
const classicCases = CLASSIC_CASES.filter(
  (one) => isWhole || CLASSIC_DIFFERENCES.has(one.name) || !isToldByBuildx(one),
);

/** Tells whether a build fails by what its client is asked for, or asks for itself. Others fail the same from a tar. */
const isAboutItsClient = ({ dockerfile, files, args, platform, options }: TableCase): boolean =>
  [args, platform, options, files?.['.dockerignore']].some((asked) => asked !== undefined) ||
  dockerfile.includes('type=ssh');

const posted = CASES.filter((one) => one.fails && !isWhole && !isAboutItsClient(one));

/** A build with buildx that fails takes a client for itself, so most of these are done without one. */
async function buildByBuildKit(): Promise<ReadonlyMap<string, CaseRecord>> {
  const others = CASES.filter((one) => !posted.includes(one));
  return recordsOf(
    under.engine,
    new Map([
      ...(await buildWithBuildx(under.engine, others, FAILING_HERE)),
      ...(await buildByPost(under.engine, posted, 2)),
    ]),
  );
}

function compare(
  rows: ReadonlyMap<string, Row>,
  cases: readonly TableCase[],
  differences: ReadonlyMap<string, string>,
  build: () => Promise<ReadonlyMap<string, CaseRecord>>,
): void {
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
    compare(withBuildx, CASES, DIFFERENCES, buildByBuildKit);
  },
);

describe('builds by POST /build are those of dockerd', () => {
  compare(classic, classicCases, CLASSIC_DIFFERENCES, async () =>
    recordsOf(under.engine, await buildByPost(under.engine, classicCases, 1)),
  );
});
