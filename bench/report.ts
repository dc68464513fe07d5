/** Medians, ratios with their spread, and whether they reach their targets, as a table, as JSON and as a chart. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { ratioChart, type Bar } from './chart.js';
import { median, type Metric } from './measure.js';
import type { MetricResult } from './sampling.js';
import { isJudgedAlone, spreadOf, targetOf, valuesToJudge, verdictOf, type Spread, type Verdict } from './verdict.js';

export interface Comparison extends Pick<Metric, 'name' | 'unit' | 'moreIsBetter'> {
  readonly medians: Readonly<Record<string, number>>;
  /** engined / dockerd, or an earlier build, by pairs; absent when only one of them ran, and where engined is alone. */
  readonly ratio?: Spread;
  /** engined's values, where the target is for them. */
  readonly alone?: Spread;
  readonly target?: number;
  readonly verdict?: Verdict;
  /** Share of the machine that others used meanwhile, from 0 to 1. */
  readonly others: number;
  readonly samples: MetricResult['samples'];
}

export interface Run {
  readonly date: string;
  readonly machine: object;
  readonly versions: Readonly<Record<string, string>>;
  readonly comparisons: readonly Comparison[];
}

function compare({ metric, samples, others }: MetricResult): Comparison {
  const { name, unit, moreIsBetter } = metric;
  const values = valuesToJudge(metric, samples);
  const spread = values && spreadOf(values);
  const target = targetOf(metric, samples);
  return {
    name,
    unit,
    moreIsBetter,
    medians: Object.fromEntries(Object.entries(samples).map(([engine, taken]) => [engine, median(taken)])),
    ...(spread && { [isJudgedAlone(metric, samples) ? 'alone' : 'ratio']: spread }),
    ...(target !== undefined && { target }),
    ...(spread && target !== undefined && { verdict: verdictOf(spread, { target, moreIsBetter }) }),
    others,
    samples,
  };
}

/** `0.4 - 0.5`, in two digits after the point, or fewer for large values. */
function intervalText({ interval }: Spread): string {
  return interval === undefined ? '' : interval.map((end) => end.toFixed(Math.abs(end) < 100 ? 2 : 0)).join(' - ');
}

function row(engines: readonly string[], comparison: Comparison): readonly string[] {
  const { name, unit, moreIsBetter, medians, ratio, alone, target, verdict, others, samples } = comparison;
  const rounds = Math.max(...Object.values(samples).map(({ length }) => length));
  const unitOfTarget = alone === undefined ? 'x' : ` ${unit}`;
  const wanted =
    target === undefined ? '' : `${moreIsBetter ? 'at least' : 'at most'} ${Number(target.toFixed(2))}${unitOfTarget}`;
  return [
    name,
    ...engines.map((engine) =>
      medians[engine] === undefined ? '' : `${medians[engine].toFixed(unit === 'times' ? 2 : 1)} ${unit}`,
    ),
    ratio === undefined ? '' : `${ratio.middle.toFixed(2)}x`,
    intervalText(ratio ?? alone ?? { middle: Number.NaN }),
    wanted,
    verdict ?? '',
    String(rounds),
    `${Math.round(others * 100)} %`,
  ];
}

function table(comparisons: readonly Comparison[]): string {
  const engines = [...new Set(comparisons.flatMap(({ medians }) => Object.keys(medians)))];
  const title = ['', ...engines, 'ratio', 'spread', 'target', '', 'rounds', 'others'];
  const all = [title, ...comparisons.map((comparison) => row(engines, comparison))];
  const widths = title.map((_, column) => Math.max(...all.map((cells) => cells[column]?.length ?? 0)));
  return all
    .map((cells) =>
      cells
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function barOf({ name, unit, moreIsBetter, medians, ratio, target }: Comparison): Bar[] {
  if (ratio === undefined) return [];
  const advantageOf = (value: number): number => (moreIsBetter ? value : 1 / value);
  const advantage = advantageOf(ratio.middle);
  const other = medians['dockerd'] ?? medians['before'];
  const ends = ratio.interval?.map(advantageOf);
  return [
    {
      label: name,
      advantage,
      ...(target !== undefined && { target: advantageOf(target) }),
      ...(ends && { interval: [Math.min(...ends), Math.max(...ends)] as const }),
      note: `${advantage.toFixed(2)} (${medians['engined']?.toFixed(0)} against ${other?.toFixed(0)} ${unit})`,
    },
  ];
}

/** Prints the table, writes `latest.json` and `latest.svg` into `dir`, and returns what the first of them has. */
export function report(results: readonly MetricResult[], versions: Readonly<Record<string, string>>, dir: string): Run {
  const comparisons = results.map(compare);
  console.log(table(comparisons));
  mkdirSync(dir, { recursive: true });
  const machine = {
    cpu: cpus()[0]?.model,
    cores: cpus().length,
    memoryBytes: totalmem(),
    kernel: release(),
    node: process.version,
    loadAverage: loadavg(),
  };
  const run: Run = { date: new Date().toISOString(), machine, versions, comparisons };
  writeFileSync(join(dir, 'latest.json'), `${JSON.stringify(run, null, 2)}\n`);
  const bars = comparisons.flatMap(barOf);
  if (bars.length > 0) {
    const rival = versions['before'] === undefined ? 'dockerd' : 'an earlier build';
    writeFileSync(join(dir, 'latest.svg'), ratioChart(`engined against ${rival}`, bars));
  }
  return run;
}
