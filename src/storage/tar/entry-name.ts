/** Makes names of tar entries relative to the root of the layer. */
import { invalid } from '../../errors/engine-error.js';

/**
 * Returns the name without leading `/` and `./`, trailing `/`, and empty, `.` and `..` components; '' for the root
 * itself.
 * @throws EngineError invalid for a name that climbs out of the root.
 */
export function cleanName(name: string): string {
  let start = 0;
  let end = name.length;
  while (start < end) {
    if (name.charCodeAt(start) === SLASH) start++;
    else if (name.charCodeAt(start) === DOT && name.charCodeAt(start + 1) === SLASH) start += 2;
    else break;
  }
  while (end > start && name.charCodeAt(end - 1) === SLASH) end--;
  const inner = start === 0 && end === name.length ? name : name.slice(start, end);
  if (inner.charCodeAt(0) !== DOT && !inner.includes('//') && !inner.includes('/.')) return inner;
  const kept: string[] = [];
  for (const part of inner.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') kept.push(part);
    else if (kept.pop() === undefined) throw breakout(name);
  }
  return kept.join('/');
}

export function breakout(name: string): Error {
  return invalid(`tar entry ${JSON.stringify(name)} is outside of the archive's root`, { code: 'TAR_BREAKOUT' });
}

const SLASH = 0x2f;
const DOT = 0x2e;
