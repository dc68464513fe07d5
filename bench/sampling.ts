/** Takes the samples of one measure: pairs in random order, as many as their spread needs. */
import { execFileSync } from 'node:child_process';
import { Cleanup } from '../test/support/cleanup.js';
import { dockerOk } from '../test/support/cli.js';
import { Engine, type EngineKind } from '../test/support/engine.js';
import { callJson } from '../test/support/http.js';
import { othersShare } from './machine-load.js';
import { median, type Measure, type Metric, type Sample, type Setting } from './measure.js';
import { countProcessorTime, type ProcessorTime } from './processor-time.js';
import { startSecond } from './second-engine.js';
import { warmMemory } from './warm-memory.js';
import { MIN_ROUNDS, randomOrders, spreadOf, targetOf, valuesToJudge, verdictOf } from './verdict.js';

/** More rounds would tell a difference that nobody feels. */
const MAX_ROUNDS = 15;
/** After this time no round is begun but those that every measure needs. */
const MAX_MS = 240_000;

/** One of those that are compared. */
export interface Contender {
  readonly name: string;
  readonly tcpUrl: string;
  readonly kind: () => EngineKind;
}

export interface MetricResult {
  readonly metric: Metric;
  /** Samples by engine; those at one index belong to one round. */
  readonly samples: Readonly<Record<string, readonly number[]>>;
  /** Share of the machine that others used meanwhile, from 0 to 1; the middle of all rounds. */
  readonly others: number;
}

export interface Course {
  /** This many rounds, whatever the spread. */
  readonly rounds?: number;
  /** Gets the version of each engine. */
  readonly versions: Record<string, string>;
  readonly setting: (tcpUrl: string) => Setting;
}

interface Sampler {
  readonly name: string;
  readonly samples: Sample[];
  take(): Promise<Sample>;
}

function processorTime({ name }: Measure): Metric {
  return { name: `processor time of ${name}`, unit: 'ms', moreIsBetter: false };
}

/** Resolves when an engine rests and the disk has what was written. */
async function settle(processor: ProcessorTime): Promise<void> {
  await processor.rest();
  execFileSync('sync');
}

async function prepare(
  measure: Measure,
  { name, tcpUrl, kind }: Contender,
  { setting, versions }: Course,
  cleanup: Cleanup,
): Promise<Sampler> {
  const processor = countProcessorTime(kind());
  cleanup.add(() => processor.remove());
  const engine = await Engine.start(processor.kind);
  cleanup.add(() => engine.discard());
  versions[name] = (await callJson<{ Version: string }>(engine.socketPath, 'GET', '/version')).Version;
  const ours = setting(tcpUrl);
  await dockerOk(engine, ['pull', '-q', ours.image]);
  const sample = await measure.prepare(engine, ours, () => startSecond(engine, ours.image, kind(), cleanup));
  // A measure may write some GB for each engine, which would be on their way to the disk during the first samples.
  await settle(processor);
  const take = async (): Promise<Sample> => {
    warmMemory();
    const before = processor.read();
    const values = await sample();
    await settle(processor);
    return { ...values, [processorTime(measure).name]: processor.read() - before };
  };
  return { name, samples: [], take };
}

function resultsOf(measure: Measure, samplers: readonly Sampler[], others: readonly number[]): MetricResult[] {
  return [...measure.metrics, processorTime(measure)].map((metric) => ({
    metric,
    samples: Object.fromEntries(
      samplers.map(({ name, samples }) => [name, samples.map((values) => values[metric.name] ?? Number.NaN)]),
    ),
    others: median(others),
  }));
}

/** Whether a further round could still give a verdict that is missing. */
function isUndecided(results: readonly MetricResult[]): boolean {
  return results.some(({ metric, samples }) => {
    const target = targetOf(metric, samples);
    const values = valuesToJudge(metric, samples);
    if (target === undefined || values === undefined) return false;
    return verdictOf(spreadOf(values), { target, moreIsBetter: metric.moreIsBetter }) === 'not sound';
  });
}

/** Fresh engines, prepared one after the other, then sampled in pairs until their verdicts are sound. */
export async function take(
  measure: Measure,
  contenders: readonly Contender[],
  course: Course,
): Promise<MetricResult[]> {
  const cleanup = new Cleanup();
  try {
    const samplers: Sampler[] = [];
    for (const contender of contenders) samplers.push(await prepare(measure, contender, course, cleanup));
    const begin = performance.now();
    const orders = randomOrders(samplers);
    const others: number[] = [];
    const limit = course.rounds ?? MAX_ROUNDS;
    const goesOn = (round: number): boolean =>
      round < (course.rounds ?? MIN_ROUNDS) ||
      (round < limit && performance.now() - begin < MAX_MS && isUndecided(resultsOf(measure, samplers, others)));
    for (let round = 0; goesOn(round); round++) {
      others.push(await othersShare());
      for (const sampler of orders.next().value) {
        const values = await sampler.take();
        sampler.samples.push(values);
        const figures = Object.entries(values).map(([key, value]) => `${key} ${value.toFixed(1)}`);
        console.error(`${measure.name} ${round + 1} ${sampler.name}: ${figures.join(', ')}`);
      }
    }
    return resultsOf(measure, samplers, others);
  } finally {
    await cleanup.run();
  }
}
