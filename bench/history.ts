/** Results of each commit in one file, a line of JSON each, and a chart of them over time. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { escaped } from './chart.js';
import type { Comparison, Run } from './report.js';

type Figure = Pick<Comparison, 'name' | 'unit' | 'moreIsBetter' | 'ratio' | 'target' | 'verdict' | 'others'> & {
  readonly engined: number;
};

export interface HistoryLine extends Pick<Run, 'date' | 'machine' | 'versions'> {
  readonly commit: string;
  /** Files were not as in the commit. */
  readonly isChanged: boolean;
  readonly figures: readonly Figure[];
}

const ROW = 64;
const LEFT = 250;
const STEP = 26;
const TOP = 50;
/** So many of the newest results are drawn. */
const DRAWN = 40;

/** Says what was measured. A copy of the source without its history is measured, too, in a root of another release. */
function sourceOf(root: string): Pick<HistoryLine, 'commit' | 'isChanged'> {
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    return {
      commit: git('rev-parse', '--short', 'HEAD'),
      isChanged: git('status', '--porcelain', '--untracked-files=no') !== '',
    };
  } catch {
    return { commit: 'unknown', isChanged: false };
  }
}

function lineOf({ date, machine, versions, comparisons }: Run, root: string): HistoryLine {
  return {
    date,
    ...sourceOf(root),
    machine,
    versions,
    figures: comparisons.map(({ medians, samples: _samples, alone: _alone, ...rest }) => ({
      ...rest,
      engined: medians['engined'] ?? Number.NaN,
    })),
  };
}

/** One metric's ratios over all lines, on a logarithmic axis of its own; better is always further up. */
function panel(lines: readonly HistoryLine[], name: string, top: number): string[] {
  const found = lines.flatMap(({ figures, commit }, index) => {
    const figure = figures.find((other) => other.name === name);
    return figure?.ratio === undefined ? [] : [{ index, commit, figure, ratio: figure.ratio }];
  });
  const last = found.at(-1);
  if (last === undefined) return [];
  const { moreIsBetter, target } = last.figure;
  const log = (ratio: number): number => Math.log2(moreIsBetter ? ratio : 1 / ratio);
  const all = [1, target ?? 1, ...found.flatMap(({ ratio }) => [ratio.middle, ...(ratio.interval ?? [])])].map(log);
  const [low, high] = [Math.min(...all), Math.max(...all, Math.min(...all) + 0.1)];
  const x = (index: number): string => (LEFT + (index + 0.5) * STEP).toFixed(1);
  const y = (ratio: number): string => (top + 8 + ((high - log(ratio)) / (high - low)) * (ROW - 20)).toFixed(1);
  const right = LEFT + lines.length * STEP;
  const level = (ratio: number, dash: string): string =>
    `<line x1="${LEFT}" x2="${right}" y1="${y(ratio)}" y2="${y(ratio)}" stroke="#718096" stroke-dasharray="${dash}"/>`;
  return [
    `<text x="${LEFT - 10}" y="${top + 28}" text-anchor="end">${escaped(name)}</text>`,
    level(1, 'none'),
    ...(target === undefined ? [] : [level(target, '3 3')]),
    ...found.flatMap(({ index, ratio: { interval } }) =>
      interval === undefined
        ? []
        : [
            `<line x1="${x(index)}" x2="${x(index)}" y1="${y(interval[0])}" y2="${y(interval[1])}" ` +
              'stroke="#90cdf4" stroke-width="3"/>',
          ],
    ),
    `<polyline fill="none" stroke="#2b6cb0" points="${found
      .map(({ index, ratio }) => `${x(index)},${y(ratio.middle)}`)
      .join(' ')}"/>`,
    ...found.map(
      ({ index, commit, ratio }) =>
        `<circle cx="${x(index)}" cy="${y(ratio.middle)}" r="2.5" fill="#2b6cb0">` +
        `<title>${escaped(commit)}: ${ratio.middle.toFixed(2)}x</title></circle>`,
    ),
    `<text x="${right + 8}" y="${y(last.ratio.middle)}">${last.ratio.middle.toFixed(2)}x</text>`,
  ];
}

/** A row for each metric; from left to right the results, oldest first. */
export function historyChart(all: readonly HistoryLine[]): string {
  const lines = all.slice(-DRAWN);
  const names = [...new Set(lines.flatMap(({ figures }) => figures.map(({ name }) => name)))];
  const panels = names
    .map((name) => (index: number) => panel(lines, name, TOP + index * ROW))
    .filter((draw) => draw(0).length > 0);
  const height = TOP + panels.length * ROW + 60;
  const width = LEFT + Math.max(lines.length, 8) * STEP + 80;
  const commits = lines.map(({ commit, isChanged }, index) => {
    const place = `${(LEFT + (index + 0.7) * STEP).toFixed(1)} ${height - 52}`;
    return `<text transform="translate(${place}) rotate(60)">${escaped(commit)}${isChanged ? '+' : ''}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      'font-family="sans-serif" font-size="11" fill="#1a202c">',
    '<rect width="100%" height="100%" fill="#ffffff"/>',
    '<text x="10" y="20" font-size="15" font-weight="bold">engined by dockerd, over time</text>',
    '<text x="10" y="36" fill="#4a5568">up is better; grey: equal; dashed: target; bars: spread</text>',
    ...panels.flatMap((draw, index) => draw(index)),
    ...commits,
    '</svg>',
    '',
  ].join('\n');
}

/** Appends a run to the file at `path`, and draws all of its lines beside it, as `.svg`. @param root the repository. */
export function keep(run: Run, path: string, root: string): void {
  appendFileSync(path, `${JSON.stringify(lineOf(run, root))}\n`);
  const lines = readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as HistoryLine);
  writeFileSync(`${path.replace(/\.jsonl?$/, '')}.svg`, historyChart(lines));
}
