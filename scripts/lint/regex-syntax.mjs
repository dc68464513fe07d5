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
const CLASSES = {
  d: DIGIT,
  D: complement(DIGIT),
  w: WORD,
  W: complement(WORD),
  s: SPACE,
  S: complement(SPACE),
};

/** @throws Error for syntax that this reader does not know. */
export function parseRegex(source, flags) {
  const reader = { source, flags, at: 0 };
  const tree = readChoice(reader);
  if (reader.at < source.length) fail(reader, 'unexpected )');
  return tree;
}

function fail({ source, at }, what) {
  throw new Error(`${what} at ${at} of /${source}/`);
}

function readChoice(reader) {
  const items = [readSequence(reader)];
  while (reader.source[reader.at] === '|') {
    reader.at++;
    items.push(readSequence(reader));
  }
  return items.length === 1 ? items[0] : { kind: 'choice', items };
}

function readSequence(reader) {
  const { source } = reader;
  const items = [];
  while (reader.at < source.length && source[reader.at] !== '|' && source[reader.at] !== ')') {
    const item = readRepeated(reader, readAtom(reader));
    // Behind a repetition of any character the end is always reached.
    if (!(item.isEnd && takesAll(items.at(-1)))) items.push(item);
  }
  return { kind: 'sequence', items };
}

function readRepeated(reader, item) {
  const bounds = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(reader.source.slice(reader.at));
  if (!bounds) return item;
  reader.at += bounds[0].length;
  if (reader.source[reader.at] === '?') reader.at++;
  const { 0: text, 1: from, 2: comma, 3: to } = bounds;
  const min = from === undefined ? (text === '+' ? 1 : 0) : Number(from);
  const max =
    from === undefined ? (text === '?' ? 1 : Infinity) : comma === '' ? min : to === '' ? Infinity : Number(to);
  return { kind: 'repeat', item, min: Math.min(min, 2), max: max > MANY ? Infinity : Math.min(max, 2) };
}

function readAtom(reader) {
  const { source, flags } = reader;
  const char = source[reader.at++];
  if (char === '(') return readGroup(reader);
  if (char === '[') return readSet(reader);
  if (char === '.') return { kind: 'set', ranges: flags.includes('s') ? ANY : complement(NEWLINE) };
  if (char === '^') return { kind: 'assertion', isStart: !flags.includes('m') };
  if (char === '$') return { kind: 'assertion', isEnd: !flags.includes('m') };
  if (char === '\\' && /[bB]/.test(source[reader.at])) return (reader.at++, { kind: 'assertion' });
  const ranges = char === '\\' ? readEscape(reader, false) : one(char.codePointAt(0));
  return { kind: 'set', ranges: folded(ranges, flags) };
}

function readGroup(reader) {
  const special = /^\?(?:[:]|<?[=!]|<\w+>)/.exec(reader.source.slice(reader.at))?.[0] ?? '';
  reader.at += special.length;
  const inner = readChoice(reader);
  if (reader.source[reader.at++] !== ')') fail(reader, 'the group has no end');
  return /[=!]$/.test(special) ? { kind: 'assertion', inner } : inner;
}

function readSet(reader) {
  const { source, flags } = reader;
  const isNegated = source[reader.at] === '^';
  if (isNegated) reader.at++;
  const ranges = [];
  while (source[reader.at] !== ']') {
    if (reader.at >= source.length) fail(reader, 'the set has no end');
    const low = readMember(reader);
    if (source[reader.at] === '-' && source[reader.at + 1] !== ']') {
      reader.at++;
      ranges.push([low[0][0], readMember(reader)[0][1]]);
    } else ranges.push(...low);
  }
  reader.at++;
  const all = folded(ranges, flags);
  return { kind: 'set', ranges: isNegated ? complement(all) : all };
}

function readMember(reader) {
  const { source } = reader;
  if (source[reader.at] !== '\\') return one(source.codePointAt(reader.at++));
  reader.at++;
  return readEscape(reader, true);
}

function readEscape(reader, inSet) {
  const char = reader.source[reader.at++];
  if (char in CLASSES) return CLASSES[char];
  if (char === 'b' && inSet) return [[8, 8]];
  if (char in CONTROL) return one(CONTROL[char]);
  const hex = /^(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]+)\})/.exec(reader.source.slice(reader.at - 1));
  if (hex) {
    reader.at += hex[0].length - 1;
    return one(Number.parseInt(hex[1] ?? hex[2] ?? hex[3], 16));
  }
  const property = /^p\{\w+\}/.exec(reader.source.slice(reader.at - 1));
  if (property) {
    // A property of Unicode counts as every character: an ambiguity may be seen where none is, never the reverse.
    reader.at += property[0].length - 1;
    return ANY;
  }
  if (/[pPkcxu1-9]/.test(char)) fail(reader, `\\${char} is not understood`);
  return one(char.codePointAt(0));
}

/** Adds the other case of letters where the flags ignore case. */
function folded(ranges, flags) {
  return flags.includes('i') ? [...ranges, ...ranges.flatMap(otherCase)] : ranges;
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
