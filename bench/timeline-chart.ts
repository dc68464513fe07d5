/** Steps of the daemon's work over time as SVG. */
import { escaped } from './chart.js';

export interface TimelineStep {
  /** Room and action. */
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly begunMs: number;
  readonly endedMs: number;
}

const ROW = 18;
const LEFT = 250;
const WIDTH = 760;
const RIGHT = 90;
const TOP = 64;
/** So many grid lines, about. */
const LINES = 10;
/** Shorter steps, as a part of the whole, are left out. */
const VISIBLE = 1 / 500;
const COLOURS: Readonly<Record<string, string>> = {
  http: '#2d3748',
  grpc: '#2c5282',
  actor: '#6b46c1',
  containerd: '#c05621',
  shim: '#975a16',
  tasks: '#dd6b20',
  layers: '#2f855a',
  network: '#2b6cb0',
  records: '#b83280',
  worker: '#718096',
};

/** A length that a grid can have: 1, 2 or 5 with zeros. */
function gridStep(spanMs: number): number {
  const rough = spanMs / LINES;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? 10 * power;
}

function time(ms: number): string {
  return ms < 10 ? ms.toFixed(1) : ms.toFixed(0);
}

/** A bar for each step that can be seen, in the order in which they began. */
export function timelineChart(title: string, taken: readonly TimelineStep[]): string {
  const begin = Math.min(...taken.map(({ begunMs }) => begunMs));
  const span = Math.max(...taken.map(({ endedMs }) => endedMs)) - begin;
  const steps = taken
    .filter(({ begunMs, endedMs }) => endedMs - begunMs >= span * VISIBLE)
    .toSorted((a, b) => a.begunMs - b.begunMs || b.endedMs - a.endedMs);
  const x = (ms: number): number => LEFT + ((ms - begin) / span) * WIDTH;
  const height = TOP + steps.length * ROW + 20;
  const grid = gridStep(span);
  const lines = Array.from({ length: Math.floor(span / grid) + 1 }, (_, index) => {
    const at = x(begin + index * grid).toFixed(1);
    return [
      `<line x1="${at}" x2="${at}" y1="${TOP - 8}" y2="${height - 20}" stroke="#e2e8f0"/>`,
      `<text x="${at}" y="${TOP - 12}" text-anchor="middle" fill="#4a5568">${Number((index * grid).toFixed(3))}</text>`,
    ].join('');
  });
  const rows = steps.map(({ name, begunMs, endedMs }, index) => {
    const y = TOP + index * ROW;
    const colour = COLOURS[name.slice(0, name.indexOf('.'))] ?? '#4a5568';
    const width = Math.max(1, x(endedMs) - x(begunMs));
    return [
      `<text x="${LEFT - 8}" y="${y + 12}" text-anchor="end">${escaped(name)}</text>`,
      `<rect x="${x(begunMs).toFixed(1)}" y="${y + 2}" width="${width.toFixed(1)}" height="12" fill="${colour}"/>`,
      `<text x="${(x(begunMs) + width + 5).toFixed(1)}" y="${y + 12}">${time(endedMs - begunMs)}</text>`,
    ].join('');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${LEFT + WIDTH + RIGHT}" height="${height}" ` +
      'font-family="sans-serif" font-size="11" fill="#1a202c">',
    '<rect width="100%" height="100%" fill="#ffffff"/>',
    `<text x="10" y="22" font-size="15" font-weight="bold">${escaped(title)}: ${time(span)} ms</text>`,
    '<text x="10" y="38" fill="#4a5568">milliseconds; steps contain what they wait for; short ones are left out</text>',
    ...lines,
    ...rows,
    '</svg>',
    '',
  ].join('\n');
}
