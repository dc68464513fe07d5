/** Medians, ratios and whether they reach their targets, as a table, as JSON and as a chart. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { ratioChart } from './chart.js';
import { median, type Metric } from './measure.js';

/** Beside an earlier build, no measure may be worse by more. */
const MAX_GROWTH = 1.05;

export interface MetricResult {
  readonly metric: Metric;
  /** Samples by engine, in the order in which they were taken. */
  readonly samples: Readonly<Record<string, readonly number[]>>;
}

export interface Comparison {
  readonly name: string;
  readonly unit: Metric['unit'];
  readonly medians: Readonly<Record<string, number>>;
  /** engined / dockerd, or an earlier build; absent when only one of them ran, and where engined is alone. */
  readonly ratio?: number;
  readonly target: number;
  readonly isReached?: boolean;
  readonly samples: MetricResult['samples'];
}

function compare({ metric, samples }: MetricResult): Comparison {
  const medians = Object.fromEntries(Object.entries(samples).map(([engine, values]) => [engine, median(values)]));
  const { engined, dockerd, before } = medians;
  const other = dockerd ?? before;
  const ratio = engined === undefined || other === undefined ? undefined : engined / other;
  const isAbsolute = metric.isAbsolute === true && before === undefined;
  const target = before === undefined ? metric.target : metric.moreIsBetter ? 1 / MAX_GROWTH : MAX_GROWTH;
  const judged = isAbsolute ? engined : ratio;
  return {
    name: metric.name,
    unit: metric.unit,
    medians,
    ...(ratio === undefined || isAbsolute ? {} : { ratio }),
    ...(judged === undefined ? {} : { isReached: metric.moreIsBetter ? judged >= target : judged <= target }),
    target,
    samples,
  };
}

function table(results: readonly MetricResult[], comparisons: readonly Comparison[]): string {
  const engines = [...new Set(comparisons.flatMap(({ medians }) => Object.keys(medians)))];
  const rows = comparisons.map(({ name, unit, medians, ratio, target, isReached }, index) => [
    name,
    ...engines.map((engine) =>
      medians[engine] === undefined ? '' : `${medians[engine].toFixed(unit === 'times' ? 2 : 1)} ${unit}`,
    ),
    ratio === undefined ? '' : `${ratio.toFixed(2)}x`,
    `${results[index]?.metric.moreIsBetter === true ? 'at least' : 'at most'} ${Number(target.toFixed(2))}` +
      (ratio === undefined && results[index]?.metric.isAbsolute === true ? ` ${unit}` : 'x'),
    isReached === undefined ? '' : isReached ? 'reached' : 'MISSED',
  ]);
  const all = [['', ...engines, 'ratio', 'target', ''], ...rows];
  const widths = (all[0] ?? []).map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all
    .map((row) =>
      row
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Prints the table, and writes `latest.json` and `latest.svg` into `dir`. */
export function report(
  results: readonly MetricResult[],
  versions: Readonly<Record<string, string>>,
  dir: string,
): void {
  const comparisons = results.map(compare);
  console.log(table(results, comparisons));
  mkdirSync(dir, { recursive: true });
  const machine = {
    cpu: cpus()[0]?.model,
    cores: cpus().length,
    memoryBytes: totalmem(),
    kernel: release(),
    node: process.version,
  };
  writeFileSync(
    join(dir, 'latest.json'),
    `${JSON.stringify({ date: new Date().toISOString(), machine, versions, comparisons }, null, 2)}\n`,
  );
  const bars = comparisons.flatMap(({ name, unit, medians, ratio, target }, index) => {
    if (ratio === undefined) return [];
    const moreIsBetter = results[index]?.metric.moreIsBetter === true;
    const other = medians['dockerd'] ?? medians['before'];
    const values = `${medians['engined']?.toFixed(0)} against ${other?.toFixed(0)} ${unit}`;
    const note = `${(moreIsBetter ? ratio : 1 / ratio).toFixed(2)} (${values})`;
    return [
      { label: name, advantage: moreIsBetter ? ratio : 1 / ratio, target: moreIsBetter ? target : 1 / target, note },
    ];
  });
  if (bars.length > 0) {
    const rival = versions['before'] === undefined ? 'dockerd' : 'an earlier build';
    writeFileSync(join(dir, 'latest.svg'), ratioChart(`engined against ${rival}`, bars));
  }
}
