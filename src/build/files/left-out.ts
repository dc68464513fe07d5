/**
 * Patterns of files that are left out, as in ignore files: the last one that matches a path or a directory above it
 * counts, `!` takes back. A match costs the length of the path times that of the patterns.
 */
import { RE2JS } from 're2js';
import { invalid } from '../../errors/engine-error.js';
import { toBytePath } from '../../storage/byte-path.js';
import { cleanPath } from './paths.js';
import type { LeftOut } from './source-files.js';

interface Rule {
  readonly matches: Pattern;
  readonly takesBack: boolean;
}

type Pattern = (name: string) => boolean;

const MAX_PATTERNS = 10_000;
const MAX_PROGRAM = 5000;

/** @throws EngineError invalid for a pattern that is malformed. */
export function leftOutBy(patterns: readonly string[]): LeftOut {
  if (patterns.length === 0) return () => false;
  if (patterns.length > MAX_PATTERNS) throw invalid('too many patterns of files that are left out');
  const rules = patterns.flatMap((text) => ruleOf(text.trim()));
  return (path) => {
    const above = aboveOf(path);
    let isOut = false;
    for (const { matches, takesBack } of rules) {
      if (takesBack !== isOut) continue;
      if (above.some((one) => matches(one))) isOut = !takesBack;
    }
    return isOut;
  };
}

/** Returns the path itself and the directories above it. */
function aboveOf(path: string): string[] {
  const found = [path];
  for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) found.push(path.slice(0, slash));
  return found;
}

function ruleOf(text: string): Rule[] {
  const takesBack = text.startsWith('!');
  const path = cleanPath(takesBack ? text.slice(1).trim() : text).slice(1);
  if (path === '' && text !== '.') return [];
  return [{ matches: compiled(path === '' ? '.*' : expressionOf(toBytePath(path))), takesBack }];
}

/** Compiling has a limit; matching has none, because the number of files is not in a pattern. It runs in a worker. */
function compiled(source: string): Pattern {
  const expression = RE2JS.compile(`^(?:${source})$`, RE2JS.DOTALL);
  if (expression.programSize() > MAX_PROGRAM) throw invalid('pattern is too long', { code: 'INVALID_PATTERN' });
  return (name) => expression.test(name);
}

/** Returns the regular expression of a pattern: `**` is any number of directories, `*` and `?` stay in a name. */
function expressionOf(pattern: string): string {
  let made = '';
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern.charAt(at);
    if (char === '*' && pattern[at + 1] === '*') {
      at++;
      if (pattern[at + 1] === '/') at++;
      made += at + 1 >= pattern.length ? '.*' : '(.*/)?';
    } else if (char === '*') made += '[^/]*';
    else if (char === '?') made += '[^/]';
    else if (char === '[') {
      const end = pattern.indexOf(']', at + 1);
      if (end < 0) throw invalid(`syntax error in pattern: ${pattern}`, { code: 'INVALID_PATTERN' });
      made += `[${pattern
        .slice(at + 1, end)
        .replaceAll('\\', '\\\\')
        .replaceAll('[', '\\[')}]`;
      at = end;
    } else if (char === '\\' && at + 1 < pattern.length) made += escaped(pattern.charAt(++at));
    else made += escaped(char);
  }
  return made;
}

function escaped(char: string): string {
  return '.$^+(){}|\\[]*?'.includes(char) ? `\\${char}` : char;
}
