/**
 * Makes expensive texts: repeats, nesting, many members, and an end that makes a match fail late. A recipe gives the
 * text in any size, so that a text that looks slow when it is short can be tried at the limit.
 */
import type { Random } from './random.js';

export interface Recipe {
  readonly start: string;
  /** Repeated; `#` becomes the number of the repetition. */
  readonly middle: string;
  /** Behind the repeats as often as they are; '' unless the text is nested. */
  readonly closing: string;
  readonly end: string;
}

const ATOMS = [
  'a',
  'A',
  '0',
  '1',
  ' ',
  '\t',
  '/',
  '//',
  '.',
  '..',
  '-',
  '_',
  '__',
  ':',
  ';',
  ',',
  '=',
  '"',
  "'",
  '\\',
  '\\"',
  '(',
  ')',
  '[',
  ']',
  '{',
  '}',
  '{{',
  '}}',
  '<',
  '>',
  '?',
  '*',
  '+',
  '|',
  '^',
  '$',
  '@',
  '#',
  '%',
  '%41',
  '&',
  '!',
  '\n',
  '\r\n',
  '\0',
  '\u0001',
  'é',
  '💥',
  '\ud800',
  'a=',
  'a#=b',
  'a#:b,',
  '"a#":1,',
  '"a#":{"b":',
  '1s',
  '1.',
  '80/tcp',
  '1-2,',
  '10.0.0.',
  'sha256:',
  'a.b',
  'a-b',
  'a/',
  './',
  '../',
  '://',
  'a://b:c@',
  'Bearer a="b",',
  '<a?b>; ',
  'ro,',
  'rw,size=1,',
  'net.',
  'a{2}',
  '(a',
  'a)',
  '(a+)+',
  '(a|a)*',
  '[a-z]',
  '.*',
  'a?',
  '\\pL',
  'x{9}',
  '<1>',
  'eth0',
  '{{.Name}}',
  '{{.Name | lower',
  'ctrl-a,',
  'user=',
  '0x',
  '1e9',
  'Infinity',
  'constructor',
  '__proto__',
];
const NESTINGS = [
  ['[', ']'],
  ['{"a":', '}'],
  ['(', ')'],
  ['(?:', ')*'],
  ['{{', '}}'],
  ['"', '"'],
  ['<', '>'],
  ['((', ')+)+'],
  ['[{"a":', '}]'],
] as const;
const ENDS = ['', '!', '\u0001', '\n', '"', '\\', 'Z', '@', ' ', '/', '}', ']', ')', ':', '=x', '\0'];

/** @param hints texts that the target understands: they begin and fill what is tried. */
export function randomRecipe(random: Random, hints: readonly string[]): Recipe {
  const hint = random.of(hints);
  const start = random.chance(0.5) ? hint.slice(0, random.below(hint.length + 1)) : '';
  const end = random.chance(0.3) ? hint.slice(random.below(hint.length + 1)) : random.of(ENDS);
  if (random.chance(0.15)) {
    const [open, close] = random.of(NESTINGS);
    return { start, middle: open, closing: random.chance(0.5) ? close : '', end };
  }
  const atoms = Array.from({ length: 1 + random.below(3) }, () =>
    random.chance(0.25) ? piece(random, random.of(hints)) : random.of(ATOMS),
  );
  return { start, middle: atoms.join(''), closing: '', end };
}

/** About `length` characters. */
export function cook({ start, middle, closing, end }: Recipe, length: number): string {
  const count = Math.max(
    1,
    Math.floor((length - start.length - end.length) / Math.max(1, middle.length + closing.length)),
  );
  const filling = middle.includes('#')
    ? Array.from({ length: count }, (_, index) => middle.replaceAll('#', String(index))).join('')
    : middle.repeat(count);
  return start + filling + closing.repeat(count) + end;
}

function piece(random: Random, text: string): string {
  const from = random.below(text.length + 1);
  return text.slice(from, from + 1 + random.below(12)) || 'a';
}
