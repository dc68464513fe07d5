/** The tables of docs/differences.md: of differing answers, and of requests that only one of the engines takes. */
import { readFileSync } from 'node:fs';

interface Row {
  /** The line of the document. */
  readonly line: string;
  readonly request: RegExp;
  readonly difference: RegExp;
}

/** The tables after this heading are not about what is compared. This file is in dist/test/compare. */
const [COMPARED = ''] = readFileSync(new URL('../../../docs/differences.md', import.meta.url), 'utf8').split(
  '\n## Differences from the specification',
);
/** `*` stands for anything. */
const ROWS: readonly Row[] = COMPARED.split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => {
    const [, request = '', difference = ''] = line.split('|').map((cell) => cell.trim().replaceAll('`', ''));
    return { line, request: pattern(request), difference: pattern(difference) };
  });
const used = new Set<Row>();
let differences = 0;

function pattern(text: string): RegExp {
  return new RegExp(
    `^${text
      .split('*')
      .map((part) => part.replaceAll(/[.+?^${}()[\]\\]/g, '\\$&'))
      .join('.*')}$`,
  );
}

/** Every row that fits counts as used, so that none is taken for needless because another one is wider. */
function isNamed(title: string, difference: string): boolean {
  const fitting = ROWS.filter((row) => row.request.test(title) && row.difference.test(difference));
  for (const row of fitting) used.add(row);
  if (fitting.length > 0) differences += 1;
  return fitting.length > 0;
}

/** Whether the document names this difference in answers to this request. */
export function explained(method: string, path: string, line: string): boolean {
  return isNamed(`${method} ${path}`, line);
}

/** Whether the document says that engined takes, or refuses, this. */
export function explainedVerdict(label: string, verdict: 'taken' | 'refused' | 'failed'): boolean {
  return isNamed(label, verdict);
}

/** Returns how many differences were explained since the last call. */
export function takeCount(): number {
  const count = differences;
  differences = 0;
  return count;
}

/** The document has so many rows. */
export const rowCount = ROWS.length;

/** Returns the lines of the document that have explained nothing so far. */
export function needlessRows(): readonly string[] {
  return ROWS.filter((row) => !used.has(row)).map(({ line }) => line);
}
