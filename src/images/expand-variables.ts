/** Replaces variables in the arguments of a Dockerfile instruction by their values in the image's environment. */
import { invalid } from '../errors/engine-error.js';

/**
 * The result of one instruction has this limit, because lines that double a variable again and again grow without end.
 */
const MAX_EXPANDED_CHARS = 32 * 1024;
const NAME = /[A-Za-z_][A-Za-z0-9_]*/y;
const BRACED = /^([A-Za-z_][A-Za-z0-9_]*)(?::([-+])(.*))?$/s;

/**
 * Replaces `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+instead}`, but not between single quotes or behind a
 * backslash. Quotes stay, because a later step splits the text at them; a value is escaped, so that it is always one
 * word.
 * @throws EngineError invalid for an unclosed brace, an unknown form, and results that are too long.
 */
export function expandVariables(text: string, env: readonly string[]): string {
  const values = new Map(env.map((entry) => [entry.slice(0, entry.indexOf('=')), entry.slice(entry.indexOf('=') + 1)]));
  let expanded = '';
  let isQuoted = false;
  for (let at = 0; at < text.length;) {
    const char = text.charAt(at);
    const closing = char === "'" && !isQuoted ? text.indexOf("'", at + 1) : -1;
    if (char === '$') {
      const { value, end } = variable(text, at, values);
      expanded += value.replaceAll(isQuoted ? /["\\$]/g : /[\s"'\\$]/g, '\\$&');
      at = end;
      if (expanded.length > MAX_EXPANDED_CHARS) throw bad('a change is too long with its variables');
    } else {
      const end = char === '\\' ? at + 2 : closing > 0 ? closing + 1 : at + 1;
      expanded += text.slice(at, end);
      at = end;
      if (char === '"') isQuoted = !isQuoted;
    }
  }
  return expanded;
}

/**
 * Returns the value of the variable that begins at `at`, and where its text ends. A dollar without a name stands for
 * itself.
 */
function variable(
  text: string,
  at: number,
  values: ReadonlyMap<string, string>,
): { readonly value: string; readonly end: number } {
  if (text[at + 1] !== '{') {
    NAME.lastIndex = at + 1;
    const name = NAME.exec(text)?.[0];
    return name === undefined
      ? { value: '$', end: at + 1 }
      : { value: values.get(name) ?? '', end: at + 1 + name.length };
  }
  const close = text.indexOf('}', at);
  if (close < 0) throw bad("syntax error: missing '}'");
  const [, name = '', operator, word = ''] = BRACED.exec(text.slice(at + 2, close)) ?? [];
  if (name === '') throw bad(`unsupported modifier in substitution: ${JSON.stringify(text.slice(at, close + 1))}`);
  const value = values.get(name) ?? '';
  if (operator === '-') return { value: value === '' ? word : value, end: close + 1 };
  if (operator === '+') return { value: value === '' ? '' : word, end: close + 1 };
  return { value, end: close + 1 };
}

function bad(message: string): ReturnType<typeof invalid> {
  return invalid(message, { code: 'INVALID_CHANGE' });
}
