/**
 * npm run compare: the same requests to dockerd and to engined, in the newest version of the API that both speak;
 * prints what differs. Arguments name parts: requests, versions (some requests in each version), fields, queries,
 * values, effects, nomad; all of them when there is none. To be run in a network namespace of its own.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { API_VERSIONS, ApiVersion, MAX_API_VERSION } from '../../src/http/api-version.js';
import { Cleanup } from '../support/cleanup.js';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { dockerd } from '../support/dockerd.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { pullOk } from '../support/pulls.js';
import { type Answer, differences, play } from './compare.js';
import { EffectRunner } from './effect-runner.js';
import { EFFECTS } from './effects.js';
import { explained, explainedVerdict, needlessRows, rowCount, takeCount } from './explained.js';
import { NOMAD_SCRIPT } from './nomad-script.js';
import { SCRIPT, type Step } from './script.js';
import { FIELD_TRIALS, QUERY_TRIALS, Sweep, VALUE_TRIALS, type Trial } from './sweep.js';
import { VERSION_SCRIPT } from './version-script.js';

type Report = (title: string, ...lines: readonly string[]) => void;

/**
 * Both engines after each other, each with the image and nothing else. The newest version of the API that both speak is
 * given to `work`.
 */
async function both<T>(
  registry: SeededRegistry,
  work: (engine: Engine, newest: ApiVersion) => Promise<T>,
): Promise<[theirs: T, ours: T]> {
  let newest = MAX_API_VERSION;
  const run = async (kind: EngineKind): Promise<T> => {
    const engine = await Engine.start(kind);
    try {
      const { ApiVersion: text } = await callJson<{ ApiVersion: string }>(engine.socketPath, 'GET', '/version');
      if (newest.compare(new ApiVersion(text)) > 0) newest = new ApiVersion(text);
      await pullOk(engine, registry.reference);
      return await work(engine, newest);
    } finally {
      await engine.discard();
    }
  };
  return [await run(dockerd()), await run(engined())];
}

async function compareRequests(registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, (engine, { text }) => play(engine, SCRIPT, variablesOf(registry), text));
  reportAnswers(SCRIPT, theirs, ours, report);
  return SCRIPT.length;
}

/** The requests of Nomad's Docker driver, with a directory as a task has it. */
async function compareNomad(registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, async (engine, { text }) => {
    const dir = mkdtempSync(join(tmpdir(), 'nomad-'));
    try {
      mkdirSync(join(dir, 'logs'));
      return await play(engine, NOMAD_SCRIPT, { ...variablesOf(registry), dir }, text);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
  reportAnswers(NOMAD_SCRIPT, theirs, ours, report);
  return NOMAD_SCRIPT.length;
}

/** The same requests in each version, oldest first. */
async function compareVersions(registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, async (engine, newest) => {
    const answers = new Map<string, readonly Answer[]>();
    for (const version of API_VERSIONS.filter((one) => one.compare(newest) <= 0))
      answers.set(version.text, await play(engine, VERSION_SCRIPT, variablesOf(registry), version.text));
    return answers;
  });
  for (const [version, answers] of theirs) {
    reportAnswers(VERSION_SCRIPT, answers, ours.get(version) ?? [], (title, ...lines) =>
      report(`${version}: ${title}`, ...lines),
    );
  }
  return VERSION_SCRIPT.length * theirs.size;
}

const variablesOf = ({ reference, host }: SeededRegistry): Readonly<Record<string, string>> => ({
  image: reference,
  host,
});

function reportAnswers(
  script: readonly Step[],
  theirs: readonly Answer[],
  ours: readonly Answer[],
  report: Report,
): void {
  for (const [index, { method, path, json }] of script.entries()) {
    const [their, our] = [theirs[index], ours[index]];
    if (!their || !our) continue;
    const lines = differences(their, our).filter((line) => !explained(method, path, line));
    if (lines.length === 0) continue;
    const texts =
      their.status !== our.status || process.env['VERBOSE']
        ? [`dockerd: ${their.text.trim().slice(0, 300)}`, `engined: ${our.text.trim().slice(0, 300)}`]
        : [];
    report(
      `${method} ${path}${json === undefined ? '' : ` ${JSON.stringify(json).slice(0, 160)}`}`,
      ...lines,
      ...texts,
    );
  }
}

/** Compares who takes what, that refusals leave nothing behind, and that bad input is never a fault of the engine. */
async function compareTrials(trials: readonly Trial[], registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, async (engine, { text }) => {
    const sweep = new Sweep(engine, registry.reference, `/v${text}`);
    await sweep.prepare();
    const before = await sweep.count();
    const outcomes = [];
    for (const trial of trials) outcomes.push(await sweep.attempt(trial));
    const left = await sweep.count();
    if (engine.name === 'engined' && left !== before)
      report('containers and networks', `${left} are left, not ${before}`);
    return outcomes;
  });
  for (const [index, { label }] of trials.entries()) {
    const [their, our] = [theirs[index], ours[index]];
    if (!their || !our) continue;
    const isAlike =
      (their.verdict === 'taken') === (our.verdict === 'taken') &&
      (our.verdict !== 'failed' || their.verdict === 'failed');
    if (!isAlike && !explainedVerdict(label, our.verdict))
      report(label, `dockerd: ${their.text}`, `engined: ${our.text}`);
  }
  return trials.length;
}

async function compareEffects(registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, async (engine, { text }) => {
    const dir = mkdtempSync(join(tmpdir(), 'effects-'));
    try {
      const runner = new EffectRunner(engine, registry.reference, dir, `/v${text}`);
      await runner.prepare();
      const outputs = new Map<string, string>();
      for (const [name, effect] of Object.entries(EFFECTS)) outputs.set(name, await runner.run(effect));
      return outputs;
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
  for (const [name, { why }] of Object.entries(EFFECTS)) {
    const isAlike = theirs.get(name) === ours.get(name);
    if (why === undefined && !isAlike)
      report(name, `dockerd: ${theirs.get(name) ?? ''}`, `engined: ${ours.get(name) ?? ''}`);
    if (why !== undefined && isAlike && isNewestPeer()) report(name, `both do the same, but test/compare says: ${why}`);
  }
  return theirs.size;
}

/** Explanations are about the newest dockerd; an older one has other differences. */
function isNewestPeer(): boolean {
  return process.env['ENGINE_PEER'] === undefined;
}

const PARTS: Readonly<Record<string, (registry: SeededRegistry, report: Report) => Promise<number>>> = {
  requests: compareRequests,
  versions: compareVersions,
  fields: (registry, report) => compareTrials(FIELD_TRIALS, registry, report),
  queries: (registry, report) => compareTrials(QUERY_TRIALS, registry, report),
  values: (registry, report) => compareTrials(VALUE_TRIALS, registry, report),
  effects: compareEffects,
  nomad: compareNomad,
};

const cleanup = new Cleanup();
execFileSync('ip', ['link', 'set', 'lo', 'up']);
try {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  const wanted = process.argv.slice(2);
  const unknown = wanted.find((name) => !Object.hasOwn(PARTS, name));
  if (unknown !== undefined) throw new Error(`there is no part ${unknown}; there are ${Object.keys(PARTS).join(', ')}`);
  for (const [name, compare] of Object.entries(PARTS)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue;
    let differing = 0;
    const count = await compare(registry, (title, ...lines) => {
      differing++;
      console.log([title, ...lines.map((line) => `    ${line}`)].join('\n'));
    });
    console.log(
      `${name}: ${count}, ${differing} with differences that docs/differences.md does not explain; ` +
        `it explains ${takeCount()} differences`,
    );
    if (differing > 0) process.exitCode = 1;
  }
  // The document is about the newest peer, and only all parts together need all of it.
  if (wanted.length === 0 && isNewestPeer()) {
    const rows = needlessRows();
    console.log(
      [`rows of docs/differences.md that explain nothing: ${rows.length} of ${rowCount}`, ...rows].join('\n    '),
    );
    if (rows.length > 0) process.exitCode = 1;
  }
} finally {
  await cleanup.run();
}
