/**
 * Reads a regular expression of JavaScript as a tree of sequences, choices, repetitions and sets of characters.
 * Assertions and look-arounds match the empty text; a repetition of very many is one without end.
 */
const MAX_CODE = 0x10ffff;
/** A bounded repetition longer than this costs as much as an unbounded one. */
const MANY = 100;

const DIGIT = [[48, 57]];
const WORD = [
  [48, 57],
  [65, 90],
  [95, 95],
  [97, 122],
];
const SPACE = [
  [9, 13],
  [32, 32],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const NEWLINE = [
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
];
const CONTROL = { n: 10, r: 13, t: 9, v: 11, f: 12, 0: 0 };

export function complement(ranges) {
  const result = [];
  let next = 0;
  for (const [low, high] of ranges.toSorted((a, b) => a[0] - b[0])) {
    if (low > next) result.push([next, low - 1]);
    next = Math.max(next, high + 1);
  }
  if (next <= MAX_CODE) result.push([next, MAX_CODE]);
  return result;
}

export const ANY = [[0, MAX_CODE]];

/** @throws Error for syntax that this reader does not know. */
export function parseRegex(source, flags) {
  let at = 0;
  const fail = (what) => {
    throw new Error(`${what} at ${at} of /${source}/`);
  };
  const folded = (ranges) => (flags.includes('i') ? [...ranges, ...ranges.flatMap(otherCase)] : ranges);
  const set = (ranges) => ({ kind: 'set', ranges: folded(ranges) });

  const escape = (inSet) => {
    const char = source[at++];
    if (char === 'd') return DIGIT;
    if (char === 'D') return complement(DIGIT);
    if (char === 'w') return WORD;
    if (char === 'W') return complement(WORD);
    if (char === 's') return SPACE;
    if (char === 'S') return complement(SPACE);
    if (char === 'b' && inSet) return [[8, 8]];
    if (char in CONTROL) return one(CONTROL[char]);
    const hex = /^(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]+)\})/.exec(source.slice(at - 1));
    if (hex) {
      at += hex[0].length - 1;
      return one(Number.parseInt(hex[1] ?? hex[2] ?? hex[3], 16));
    }
    if (/[pPkcxu1-9]/.test(char)) fail(`\\${char} is not understood`);
    return one(char.codePointAt(0));
  };
  const oneOf = () => {
    const isNegated = source[at] === '^';
    if (isNegated) at++;
    const ranges = [];
    const member = () => (source[at] === '\\' ? (at++, escape(true)) : one(source.codePointAt(at++)));
    while (source[at] !== ']') {
      if (at >= source.length) fail('the set has no end');
      const low = member();
      if (source[at] === '-' && source[at + 1] !== ']') {
        at++;
        ranges.push([low[0][0], member()[0][1]]);
      } else ranges.push(...low);
    }
    at++;
    const all = folded(ranges);
    return { kind: 'set', ranges: isNegated ? complement(all) : all };
  };
  const group = () => {
    const special = /^\?(?:[:]|<?[=!]|<\w+>)/.exec(source.slice(at))?.[0] ?? '';
    at += special.length;
    const inner = choice();
    if (source[at++] !== ')') fail('the group has no end');
    return /[=!]$/.test(special) ? { kind: 'assertion', inner } : inner;
  };
  const atom = () => {
    const char = source[at++];
    if (char === '(') return group();
    if (char === '[') return oneOf();
    if (char === '.') return { kind: 'set', ranges: flags.includes('s') ? ANY : complement(NEWLINE) };
    if (char === '^') return { kind: 'assertion', isStart: !flags.includes('m') };
    if (char === '$') return { kind: 'assertion', isEnd: !flags.includes('m') };
    if (char === '\\' && /[bB]/.test(source[at])) return (at++, { kind: 'assertion' });
    if (char === '\\') return set(escape(false));
    return set(one(char.codePointAt(0)));
  };
  const repeated = (item) => {
    const bounds = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(source.slice(at));
    if (!bounds) return item;
    at += bounds[0].length;
    if (source[at] === '?') at++;
    const { 0: text, 1: from, 2: comma, 3: to } = bounds;
    const min = from === undefined ? (text === '+' ? 1 : 0) : Number(from);
    const max =
      from === undefined ? (text === '?' ? 1 : Infinity) : comma === '' ? min : to === '' ? Infinity : Number(to);
    return { kind: 'repeat', item, min: Math.min(min, 2), max: max > MANY ? Infinity : Math.min(max, 2) };
  };
  const sequence = () => {
    const items = [];
    while (at < source.length && source[at] !== '|' && source[at] !== ')') {
      const item = repeated(atom());
      // Behind a repetition of any character the end is always reached.
      if (!(item.isEnd && takesAll(items.at(-1)))) items.push(item);
    }
    return { kind: 'sequence', items };
  };
  const choice = () => {
    const items = [sequence()];
    while (source[at] === '|') {
      at++;
      items.push(sequence());
    }
    return items.length === 1 ? items[0] : { kind: 'choice', items };
  };
  const tree = choice();
  if (at < source.length) fail('unexpected )');
  return tree;
}

function takesAll(node) {
  if (node?.kind === 'sequence') return takesAll(node.items.at(-1));
  return (
    node?.kind === 'repeat' &&
    node.max === Infinity &&
    node.item.kind === 'set' &&
    complement(node.item.ranges).length === 0
  );
}

function one(code) {
  return [[code, code]];
}

function otherCase([low, high]) {
  const shifted = (from, to, by) => {
    const [start, end] = [Math.max(low, from), Math.min(high, to)];
    return start <= end ? [[start + by, end + by]] : [];
  };
  return [...shifted(65, 90, 32), ...shifted(97, 122, -32)];
}
