/** The table of docs/differences.md. */
import { readFileSync } from 'node:fs';

interface Row {
  readonly request: RegExp;
  readonly difference: RegExp;
}

/** `*` stands for anything. This file is in dist/test/compare. */
const ROWS: readonly Row[] = readFileSync(new URL('../../../docs/differences.md', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => {
    const [, request = '', difference = ''] = line.split('|').map((cell) => cell.trim().replaceAll('`', ''));
    return { request: pattern(request), difference: pattern(difference) };
  });

function pattern(text: string): RegExp {
  return new RegExp(`^${text.split('*').map((part) => part.replaceAll(/[.+?^${}()[\]\\]/g, '\\$&')).join('.*')}$`);
}

/** Whether the document names this difference in answers to this request. */
export function explained(method: string, path: string, line: string): boolean {
  return ROWS.some(({ request, difference }) => request.test(`${method} ${path}`) && difference.test(line));
}
