/**
 * npm run compare: the same requests to dockerd and to engined; prints what differs. Arguments name parts: requests,
 * fields, queries, values, effects; all of them when there is none. To be run in a network namespace of its own.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cleanup } from '../support/cleanup.js';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { dockerd } from '../support/dockerd.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { pullOk } from '../support/pulls.js';
import { differences, play } from './compare.js';
import { EffectRunner } from './effect-runner.js';
import { EFFECTS } from './effects.js';
import { explained, explainedVerdict } from './explained.js';
import { SCRIPT } from './script.js';
import { FIELD_TRIALS, QUERY_TRIALS, Sweep, VALUE_TRIALS, type Trial } from './sweep.js';

type Report = (title: string, ...lines: readonly string[]) => void;

/** Both engines after each other, each with the image and nothing else. */
async function both<T>(registry: SeededRegistry, work: (engine: Engine) => Promise<T>): Promise<[theirs: T, ours: T]> {
  const run = async (kind: EngineKind): Promise<T> => {
    const engine = await Engine.start(kind);
    try {
      await pullOk(engine, registry.reference);
      return await work(engine);
    } finally {
      await engine.discard();
    }
  };
  return [await run(dockerd()), await run(engined())];
}

async function compareRequests(registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, (engine) =>
    play(engine, SCRIPT, { image: registry.reference, host: registry.host }),
  );
  for (const [index, { method, path, json }] of SCRIPT.entries()) {
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
  return SCRIPT.length;
}

/** Who takes what; that refusals leave nothing behind; that bad input is never a fault of the engine. */
async function compareTrials(trials: readonly Trial[], registry: SeededRegistry, report: Report): Promise<number> {
  const [theirs, ours] = await both(registry, async (engine) => {
    const sweep = new Sweep(engine, registry.reference);
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
  const [theirs, ours] = await both(registry, async (engine) => {
    const dir = mkdtempSync(join(tmpdir(), 'effects-'));
    try {
      const runner = new EffectRunner(engine, registry.reference, dir);
      await runner.prepare();
      const outputs = new Map<string, string>();
      for (const [name, effect] of Object.entries(EFFECTS)) outputs.set(name, await runner.run(effect));
      return outputs;
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
  for (const [name, { why }] of Object.entries(EFFECTS)) {
    if (why === undefined && theirs.get(name) !== ours.get(name))
      report(name, `dockerd: ${theirs.get(name) ?? ''}`, `engined: ${ours.get(name) ?? ''}`);
  }
  return theirs.size;
}

const PARTS: Readonly<Record<string, (registry: SeededRegistry, report: Report) => Promise<number>>> = {
  requests: compareRequests,
  fields: (registry, report) => compareTrials(FIELD_TRIALS, registry, report),
  queries: (registry, report) => compareTrials(QUERY_TRIALS, registry, report),
  values: (registry, report) => compareTrials(VALUE_TRIALS, registry, report),
  effects: compareEffects,
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
    console.log(`${name}: ${count}, ${differing} with differences that docs/differences.md does not explain`);
    if (differing > 0) process.exitCode = 1;
  }
} finally {
  await cleanup.run();
}
