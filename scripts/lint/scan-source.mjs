/**
 * Splits TypeScript into code and the rest (comments, strings, literals), so that rules can look at regular expressions
 * and at code separately.
 */

/** Behind these a slash begins a regular expression. */
const BEFORE_REGEX =
  /(?:^|[([{,;=:?!&|+\-*%<>~^]|\b(?:return|typeof|case|in|of|do|else|void|delete|instanceof|new|throw|yield|await))\s*$/;

/** Nothing special begins in these. */
const PLAIN = /[^/'"`{}]+/y;

/**
 * `code` is the text with comments and the contents of strings blanked, line for line; `regexes` are the literals.
 * Expressions inside templates stay code.
 */
export function scanSource(text) {
  const regexes = [];
  let code = '';
  let at = 0;
  const blank = (end) => {
    code += text.slice(at, end).replaceAll(/[^\n]/g, ' ');
    at = end;
  };
  const quoted = (quote) => {
    let end = at + 1;
    while (end < text.length && text[end] !== quote) end += text[end] === '\\' ? 2 : 1;
    code += quote;
    at++;
    blank(end);
    code += quote;
    at++;
  };
  const template = () => {
    code += '`';
    at++;
    while (at < text.length && text[at] !== '`') {
      if (text[at] === '$' && text[at + 1] === '{') {
        code += '${';
        at += 2;
        until('}');
      } else blank(at + (text[at] === '\\' ? 2 : 1));
    }
    code += '`';
    at++;
  };
  const regex = () => {
    let end = at + 1;
    for (let isInSet = false; end < text.length && (isInSet || text[end] !== '/'); end++) {
      if (text[end] === '\\') end++;
      else if (text[end] === '[') isInSet = true;
      else if (text[end] === ']') isInSet = false;
    }
    const flags = /^[a-z]*/.exec(text.slice(end + 1))[0];
    regexes.push({ source: text.slice(at + 1, end), flags, line: code.split('\n').length });
    code += '/ /';
    at = end + 1 + flags.length;
  };
  const until = (closing) => {
    for (let depth = 0; at < text.length;) {
      PLAIN.lastIndex = at;
      const plain = PLAIN.exec(text)?.[0] ?? '';
      code += plain;
      at += plain.length;
      const char = text[at];
      if (char === undefined) return;
      if (char === '/' && text[at + 1] === '/') blank(lineEnd());
      else if (char === '/' && text[at + 1] === '*') blank(text.indexOf('*/', at) + 2);
      else if (char === "'" || char === '"') quoted(char);
      else if (char === '`') template();
      else if (char === '/' && BEFORE_REGEX.test(code.slice(-40))) regex();
      else {
        if (char === '{') depth++;
        if (char === '}' && closing === '}' && depth-- === 0) {
          code += char;
          at++;
          return;
        }
        code += char;
        at++;
      }
    }
  };
  const lineEnd = () => {
    const end = text.indexOf('\n', at);
    return end < 0 ? text.length : end;
  };
  until('');
  return { code, regexes };
}
