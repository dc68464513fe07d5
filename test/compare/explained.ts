/** The tables of docs/differences.md: of differing answers, and of requests that only one of the engines takes. */
import { readFileSync } from 'node:fs';

interface Row {
  readonly request: RegExp;
  readonly difference: RegExp;
}

/** `*` stands for anything. This file is in dist/test/compare. */
const LINES = readFileSync(new URL('../../../docs/differences.md', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'));
const ROWS: readonly Row[] = LINES.map((line) => {
  const [, request = '', difference = ''] = line.split('|').map((cell) => cell.trim().replaceAll('`', ''));
  return { request: pattern(request), difference: pattern(difference) };
});

function pattern(text: string): RegExp {
  return new RegExp(
    `^${text
      .split('*')
      .map((part) => part.replaceAll(/[.+?^${}()[\]\\]/g, '\\$&'))
      .join('.*')}$`,
  );
}

/** Whether the document names this difference in answers to this request. */
export function explained(method: string, path: string, line: string): boolean {
  return ROWS.some(({ request, difference }) => request.test(`${method} ${path}`) && difference.test(line));
}

/** Whether the document says that engined takes, or refuses, this. */
export function explainedVerdict(label: string, verdict: 'taken' | 'refused' | 'failed'): boolean {
  return ROWS.some(({ request, difference }) => request.test(label) && difference.test(verdict));
}
