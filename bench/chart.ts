/** A bar chart of ratios as SVG. */

export interface Bar {
  readonly label: string;
  /** Speed or thrift of engined relative to dockerd: above 1 is better, whatever the unit. */
  readonly advantage: number;
  /** The advantage that is wanted, if one is. */
  readonly target?: number;
  /** Where the true value is; as long as the noise made it. */
  readonly interval?: readonly [number, number];
  readonly note: string;
}

const ROW = 30;
const LEFT = 280;
const WIDTH = 460;
const RIGHT = 260;
const TOP = 56;

export function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** Bars on a logarithmic axis, so that twice as fast and twice as slow are equally long; a tick marks each target. */
export function ratioChart(title: string, bars: readonly Bar[]): string {
  const span = Math.max(2, ...bars.flatMap(({ advantage, target = 1 }) => [advantage, 1 / advantage, target]));
  const limit = Math.log2(span) * 1.05;
  const low = Math.min(0, ...bars.flatMap(({ advantage, interval = [] }) => [advantage, ...interval].map(Math.log2)));
  const x = (ratio: number): number => LEFT + ((Math.log2(ratio) - low) / (limit - low)) * WIDTH;
  const height = TOP + bars.length * ROW + 40;
  const rows = bars.map(({ label, advantage, target, interval, note }, index) => {
    const y = TOP + index * ROW;
    const [begin, end] = [Math.min(x(1), x(advantage)), Math.max(x(1), x(advantage))];
    const colour = advantage >= (target ?? 1) ? '#2f855a' : advantage >= 1 ? '#b7791f' : '#c53030';
    const marks = [
      ...(target === undefined ? [] : [{ at: [x(target), x(target)], from: y + 1, to: y + 23, dash: '2 2' }]),
      ...(interval === undefined ? [] : [{ at: interval.map(x), from: y + 12, to: y + 12, dash: 'none' }]),
    ];
    const right = Math.max(end, ...marks.flatMap(({ at }) => at));
    return [
      `<text x="${LEFT - 10}" y="${y + 16}" text-anchor="end">${escaped(label)}</text>`,
      `<rect x="${begin.toFixed(1)}" y="${y + 4}" width="${(end - begin).toFixed(1)}" height="16" fill="${colour}"/>`,
      ...marks.map(
        ({ at: [begin = 0, end = 0], from, to, dash }) =>
          `<line x1="${begin.toFixed(1)}" x2="${end.toFixed(1)}" y1="${from}" y2="${to}" stroke="#1a202c" ` +
          `stroke-dasharray="${dash}"/>`,
      ),
      `<text x="${(right + 8).toFixed(1)}" y="${y + 16}">${escaped(note)}</text>`,
    ].join('\n');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${LEFT + WIDTH + RIGHT}" height="${height}" ` +
      'font-family="sans-serif" font-size="12" fill="#1a202c">',
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="${LEFT}" y="22" font-size="15" font-weight="bold">${escaped(title)}</text>`,
    `<text x="${LEFT}" y="40" fill="#4a5568">times better (logarithmic); dashed: target; thin: spread</text>`,
    `<line x1="${x(1).toFixed(1)}" x2="${x(1).toFixed(1)}" y1="${TOP}" y2="${height - 30}" stroke="#718096"/>`,
    ...rows,
    `<text x="${x(1).toFixed(1)}" y="${height - 12}" text-anchor="middle">equal</text>`,
    '</svg>',
    '',
  ].join('\n');
}
