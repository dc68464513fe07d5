/** Sorts many texts in parts, so that it holds nothing else up. */
import type { Parts } from './turns.js';

/** So many texts are sorted or merged together. */
const TEXTS = 2000;

/** Returns the texts in the order of their characters, as `sort()` does. */
export function* sortedParts(texts: readonly string[]): Parts<string[]> {
  let runs: string[][] = [];
  for (let at = 0; at < texts.length; at += TEXTS) {
    runs.push(texts.slice(at, at + TEXTS).sort());
    yield;
  }
  while (runs.length > 1) {
    const merged: string[][] = [];
    for (let at = 0; at < runs.length; at += 2) merged.push(yield* mergedParts(runs[at] ?? [], runs[at + 1] ?? []));
    runs = merged;
  }
  return runs[0] ?? [];
}

function* mergedParts(one: string[], other: string[]): Parts<string[]> {
  if (other.length === 0) return one;
  const merged: string[] = [];
  let left = 0;
  let right = 0;
  for (;;) {
    const a = one[left];
    const b = other[right];
    if (a === undefined && b === undefined) return merged;
    if (b === undefined || (a !== undefined && a <= b)) {
      merged.push(a ?? '');
      left++;
    } else {
      merged.push(b);
      right++;
    }
    if (merged.length % TEXTS === 0) yield;
  }
}
