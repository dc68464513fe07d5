/** A bar chart of ratios as SVG. */

export interface Bar {
  readonly label: string;
  /** Speed or thrift of engined relative to dockerd: above 1 is better, whatever the unit. */
  readonly advantage: number;
  readonly target: number;
  readonly note: string;
}

const ROW = 30;
const LEFT = 230;
const WIDTH = 460;
const RIGHT = 260;
const TOP = 56;

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** Bars on a logarithmic axis, so that twice as fast and twice as slow are equally long; a tick marks each target. */
export function ratioChart(title: string, bars: readonly Bar[]): string {
  const span = Math.max(2, ...bars.flatMap(({ advantage, target }) => [advantage, 1 / advantage, target]));
  const limit = Math.log2(span) * 1.05;
  const low = Math.min(0, ...bars.map(({ advantage }) => Math.log2(advantage)));
  const x = (ratio: number): number => LEFT + ((Math.log2(ratio) - low) / (limit - low)) * WIDTH;
  const height = TOP + bars.length * ROW + 40;
  const rows = bars.map(({ label, advantage, target, note }, index) => {
    const y = TOP + index * ROW;
    const [begin, end] = [Math.min(x(1), x(advantage)), Math.max(x(1), x(advantage))];
    const colour = advantage >= target ? '#2f855a' : advantage >= 1 ? '#b7791f' : '#c53030';
    return [
      `<text x="${LEFT - 10}" y="${y + 16}" text-anchor="end">${escaped(label)}</text>`,
      `<rect x="${begin.toFixed(1)}" y="${y + 4}" width="${(end - begin).toFixed(1)}" height="16" fill="${colour}"/>`,
      `<line x1="${x(target).toFixed(1)}" x2="${x(target).toFixed(1)}" y1="${y + 1}" y2="${y + 23}" ` +
        'stroke="#1a202c" stroke-dasharray="2 2"/>',
      `<text x="${(Math.max(end, x(target)) + 8).toFixed(1)}" y="${y + 16}">${escaped(note)}</text>`,
    ].join('\n');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${LEFT + WIDTH + RIGHT}" height="${height}" ` +
      'font-family="sans-serif" font-size="12" fill="#1a202c">',
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="${LEFT}" y="22" font-size="15" font-weight="bold">${escaped(title)}</text>`,
    `<text x="${LEFT}" y="40" fill="#4a5568">times better than dockerd (logarithmic); dashed: target</text>`,
    `<line x1="${x(1).toFixed(1)}" x2="${x(1).toFixed(1)}" y1="${TOP}" y2="${height - 30}" stroke="#718096"/>`,
    ...rows,
    `<text x="${x(1).toFixed(1)}" y="${height - 12}" text-anchor="middle">equal</text>`,
    '</svg>',
    '',
  ].join('\n');
}
