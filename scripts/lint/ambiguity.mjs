/**
 * Finds out whether a backtracking engine may take more than linear time for a regular expression. The expression
 * becomes an automaton whose states are its sets of characters. It is bad when a text exists that leads
 * - from a state back to it in two ways (the time doubles with each repetition), or
 * - from a looping state p to p, from p to another looping state q, and from q to q (the time is at least quadratic).
 * The search for the first place that matches is such a loop, too, in front of an expression that is not anchored.
 */
import { ANY, parseRegex } from './regex-syntax.mjs';

/** Returns undefined for a linear expression, else a text that says which problem it has. */
export function ambiguityOf(source, flags) {
  const tree = parseRegex(source, flags);
  for (const alternative of tree.kind === 'choice' ? tree.items : [tree]) {
    const problem = judge(alternative, flags);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function judge(tree, flags) {
  const isAnchored = flags.includes('y') || (tree.kind === 'sequence' && tree.items[0]?.isStart === true);
  const automaton = new Automaton(
    isAnchored
      ? tree
      : {
          kind: 'sequence',
          items: [{ kind: 'repeat', item: { kind: 'set', ranges: ANY }, min: 0, max: Infinity }, tree],
        },
  );
  for (const inner of automaton.lookArounds) {
    const problem = judge({ kind: 'sequence', items: [{ kind: 'assertion', isStart: true }, inner] }, flags);
    if (problem !== undefined) return problem;
  }
  const graph = automaton.prepare();
  return isExponential(graph)
    ? 'takes exponential time'
    : isPolynomial(graph)
      ? 'takes quadratic time or more'
      : undefined;
}

class Automaton {
  sets = [];
  /** Successors of each state with how many ways there are. */
  follow = [];
  lookArounds = [];

  constructor(tree) {
    this.root = this.#build(tree);
  }

  /** `free` holds the states that are matched without any assertion behind them, where a match cannot fail any more. */
  #build(node) {
    if (node.kind === 'set') {
      const state = this.sets.push(node.ranges) - 1;
      this.follow.push(new Map());
      return { first: [state], last: [state], free: [state], isNullable: false, isFreelyNullable: false };
    }
    if (node.kind === 'assertion') {
      if (node.inner) this.lookArounds.push(node.inner);
      return { first: [], last: [], free: [], isNullable: true, isFreelyNullable: false };
    }
    if (node.kind === 'choice') {
      const items = node.items.map((item) => this.#build(item));
      const all = (name) => items.flatMap((item) => item[name]);
      return {
        first: all('first'),
        last: all('last'),
        free: all('free'),
        isNullable: items.some((item) => item.isNullable),
        isFreelyNullable: items.some((item) => item.isFreelyNullable),
      };
    }
    if (node.kind === 'sequence') return this.#sequence(node.items.map((item) => this.#build(item)));
    const { item, min, max } = node;
    const copies = Array.from({ length: Math.max(min, max === Infinity ? 1 : max) }, (_, index) => ({
      ...this.#build(item),
      isOptional: index >= min,
    }));
    if (max === Infinity) this.#connect(copies.at(-1).last, copies.at(-1).first);
    return this.#sequence(
      copies.map((copy) => (copy.isOptional ? { ...copy, isNullable: true, isFreelyNullable: true } : copy)),
    );
  }

  #sequence(items) {
    let whole = { first: [], last: [], free: [], isNullable: true, isFreelyNullable: true };
    for (const item of items) {
      this.#connect(whole.last, item.first);
      whole = {
        first: whole.isNullable ? [...whole.first, ...item.first] : whole.first,
        last: item.isNullable ? [...whole.last, ...item.last] : item.last,
        free: item.isFreelyNullable ? [...whole.free, ...item.free] : item.free,
        isNullable: whole.isNullable && item.isNullable,
        isFreelyNullable: whole.isFreelyNullable && item.isFreelyNullable,
      };
    }
    return whole;
  }

  #connect(from, to) {
    for (const state of from)
      for (const next of to) this.follow[state].set(next, (this.follow[state].get(next) ?? 0) + 1);
  }

  prepare() {
    const starts = [...new Set(this.sets.flat().flatMap(([low, high]) => [low, high + 1]))];
    const atoms = this.sets.map((ranges) =>
      starts.reduce(
        (bits, code, index) =>
          ranges.some(([low, high]) => low <= code && code <= high) ? bits | (1n << BigInt(index)) : bits,
        0n,
      ),
    );
    const successors = this.follow.map((next) => [...next.keys()]);
    return {
      atoms,
      successors,
      ways: this.follow,
      components: componentsOf(successors),
      free: new Set(this.root.free),
    };
  }
}

/** The number of the strongly connected component of each state; -1 for one that no loop goes through. */
function componentsOf(successors) {
  const reach = successors.map((_, start) => {
    const seen = new Set();
    const open = [start];
    while (open.length > 0)
      for (const next of successors[open.pop()]) if (!seen.has(next)) seen.add(next) && open.push(next);
    return seen;
  });
  return successors.map((_, state) =>
    reach[state].has(state)
      ? successors.findIndex((_next, other) => reach[state].has(other) && reach[other].has(state))
      : -1,
  );
}

function isExponential({ atoms, successors, ways, components }) {
  for (const [start, component] of components.entries()) {
    if (component === -1) continue;
    const inside = (state) => successors[state].filter((next) => components[next] === component);
    if (inside(start).some((next) => ways[start].get(next) > 1)) return true;
    // From (start, start) along two different ways back to it.
    const seen = new Set();
    const open = [[start, start, false]];
    while (open.length > 0) {
      const [a, b, isSplit] = open.pop();
      for (const x of inside(a)) {
        for (const y of inside(b)) {
          if ((atoms[x] & atoms[y]) === 0n) continue;
          const split = isSplit || x !== y;
          if (split && x === start && y === start) return true;
          const key = (x * atoms.length + y) * 2 + Number(split);
          if (!seen.has(key)) seen.add(key) && open.push([x, y, split]);
        }
      }
    }
  }
  return false;
}

function isPolynomial({ atoms, successors, components, free }) {
  /** Where the match is complete at any time, nothing is tried again. */
  const ends = (component) => components.every((other, state) => other !== component || free.has(state));
  const loops = [...new Set(components)].filter((component) => component !== -1);
  for (const p of loops) {
    for (const q of loops) if (p !== q && !ends(q) && leads({ atoms, successors, components }, p, q)) return true;
  }
  return false;
}

/** True when one text leads from p to p, from p to q, and from q to q. */
function leads({ atoms, successors, components }, p, q) {
  const size = atoms.length;
  const starts = [...components.keys()].filter((state) => components[state] === p);
  const ends = [...components.keys()].filter((state) => components[state] === q);
  for (const from of starts) {
    for (const to of ends) {
      const seen = new Set();
      const open = [[from, from, to]];
      while (open.length > 0) {
        const [a, b, c] = open.pop();
        for (const x of successors[a]) {
          if (components[x] !== p) continue;
          for (const z of successors[c]) {
            if (components[z] !== q || (atoms[x] & atoms[z]) === 0n) continue;
            for (const y of successors[b]) {
              if ((atoms[x] & atoms[y] & atoms[z]) === 0n) continue;
              if (x === from && y === to && z === to) return true;
              const key = (x * size + y) * size + z;
              if (!seen.has(key)) seen.add(key) && open.push([x, y, z]);
            }
          }
        }
      }
    }
  }
  return false;
}
