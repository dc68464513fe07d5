/** The answers of `--call` as text, for clients that do not lay out the documents themselves. */
import type { LineRange } from './ast.js';
import type { CheckWarning } from './checks.js';
import type { Outline, TargetsList } from './outline.js';

const RULE = '--------------------';
/** So many lines are shown around the ones that are meant: more around a single one. */
const AROUND = { one: 4, many: 2 };
/** When so much of the file is shown, further warnings have no lines: hundreds may be about the same million lines. */
const MAX_SHOWN = 1 << 20;
/** Longer cells do not make their column wider, since each row would have as many blanks. */
const MAX_WIDTH = 200;

export function outlineText({ name = '', description = '', args = [], secrets = [], ssh = [] }: Outline): string {
  const parts: string[] = [];
  if (name !== '' || description !== '') {
    const rows = [['TARGET:', name || '(default)'], ...(description === '' ? [] : [['DESCRIPTION:', description]])];
    parts.push(columns(rows, 1));
  }
  if (args.length > 0) {
    const rows = args.map((arg) => [arg.name, arg.value ?? '', arg.description ?? '']);
    parts.push(columns([['BUILD ARG', 'VALUE', 'DESCRIPTION'], ...rows], 3));
  }
  for (const [title, mounts] of [
    ['SECRET', secrets],
    ['SSH', ssh],
  ] as const) {
    if (mounts.length === 0) continue;
    const rows = mounts.map((mount) => [mount.name, mount.required ? 'true' : '']);
    parts.push(columns([[title, 'REQUIRED'], ...rows], 3));
  }
  return parts.map((part) => `${part}\n`).join('');
}

export function targetsText({ targets }: TargetsList): string {
  const rows = targets.map(({ name, default: isDefault, description = '' }) => [
    [name, isDefault && '(default)'].filter(Boolean).join(' '),
    description,
  ]);
  return columns([['TARGET', 'DESCRIPTION'], ...rows], 1);
}

/** Shows each warning with its lines, in their order. */
export function lintText(name: string, text: string, warnings: readonly CheckWarning[]): string {
  const lines = text.split('\n');
  const sorted = warnings.toSorted((a, b) => a.lines.start - b.lines.start || (a.rule < b.rule ? -1 : 1));
  let left = MAX_SHOWN;
  return sorted
    .map(({ rule, url, detail, lines: range }) => {
      const title = url === '' ? rule : `${rule} - ${url}`;
      const shown = left > 0 ? snippet(name, lines, range) : `${name}:${range.start}\n`;
      left -= shown.length;
      return `\nWARNING: ${title}\n${detail}\n${shown}`;
    })
    .join('');
}

/** Lays out rows so that each column but the last is as wide as its widest cell and the gap. */
export function columns(rows: readonly (readonly string[])[], gap: number): string {
  const widths = (rows[0] ?? []).map((_, index) => {
    const widest = Math.max(...rows.map((row) => charsOf(row[index] ?? '')));
    return Math.min(widest, MAX_WIDTH) + gap;
  });
  return rows
    .map((row) => {
      const last = row.length - 1;
      const cells = row.map((cell, index) =>
        index === last ? cell : cell + ' '.repeat(Math.max((widths[index] ?? 0) - charsOf(cell), gap)),
      );
      return `${cells.join('')}\n`;
    })
    .join('');
}

function charsOf(text: string): number {
  return Array.from(text).length;
}

function snippet(name: string, lines: readonly string[], { start, end }: LineRange): string {
  let [first, last] = [start, Math.min(end, lines.length)];
  const wanted = first === last ? AROUND.one : AROUND.many;
  for (let shown = 0; shown < wanted; shown++) {
    if (first > 1) {
      first--;
      shown++;
    }
    if (last < lines.length) {
      last++;
      shown++;
    }
  }
  const rows = lines.slice(first - 1, last).map((line, index) => {
    const number = first + index;
    const mark = number >= start && number <= end ? '>>>' : '   ';
    return ` ${String(number).padStart(3)} | ${mark} ${line}\n`;
  });
  return `${name}:${start}\n${RULE}\n${rows.join('')}${RULE}\n`;
}
