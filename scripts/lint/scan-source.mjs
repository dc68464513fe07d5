/**
 * Splits TypeScript into code and the rest (comments, strings, literals), so that rules can look at each of them
 * separately.
 */

/** Behind these a slash begins a regular expression. */
const BEFORE_REGEX =
  /(?:^|[([{,;=:?!&|+*%<>~^-]|\b(?:return|typeof|case|in|of|do|else|void|delete|instanceof|new|throw|yield|await))\s*$/;

/** Nothing special begins in these. */
const PLAIN = /[^/'"`{}]+/y;

/**
 * `code` is the text with comments and the contents of literals blanked, character for character. `regexes` are the
 * regular expressions. `literals` are the places of all strings, templates and regular expressions, without those
 * inside templates: expressions there stay code.
 */
export function scanSource(text) {
  const scanner = new Scanner(text);
  scanner.codeUntil('');
  return { code: scanner.code, regexes: scanner.regexes, literals: scanner.literals };
}

class Scanner {
  code = '';
  regexes = [];
  literals = [];
  #text;
  #at = 0;

  constructor(text) {
    this.#text = text;
  }

  /** Reads code up to the end, or up to a closing brace that nothing before it has opened. */
  codeUntil(closing) {
    for (let depth = 0; this.#at < this.#text.length;) {
      PLAIN.lastIndex = this.#at;
      this.#keep(PLAIN.exec(this.#text)?.[0].length ?? 0);
      const char = this.#text[this.#at];
      if (char === undefined) return;
      if (this.#special(char)) continue;
      if (char === '{') depth++;
      this.#keep(1);
      if (char === '}' && closing === '}' && depth-- === 0) return;
    }
  }

  /** Reads a comment or a literal, if one begins here. */
  #special(char) {
    const before = this.#text[this.#at + 1];
    if (char === '/' && before === '/') this.#blank(this.#indexOf('\n'));
    else if (char === '/' && before === '*') this.#blank(this.#indexOf('*/') + 2);
    else if (char === "'" || char === '"') this.#literal(() => this.#quoted(char));
    else if (char === '`') this.#literal(() => this.#template());
    else if (char === '/' && BEFORE_REGEX.test(this.code.slice(-40))) this.#literal(() => this.#regex());
    else return false;
    return true;
  }

  #literal(read) {
    const [start, outer] = [this.#at, this.literals];
    this.literals = [];
    read();
    this.literals = [...outer, { start, end: this.#at }];
  }

  #quoted(quote) {
    let end = this.#at + 1;
    while (end < this.#text.length && this.#text[end] !== quote) end += this.#text[end] === '\\' ? 2 : 1;
    this.#keep(1);
    this.#blank(end);
    this.#keep(1);
  }

  #template() {
    this.#keep(1);
    while (this.#at < this.#text.length && this.#text[this.#at] !== '`') {
      if (this.#text.startsWith('${', this.#at)) {
        this.#keep(2);
        this.codeUntil('}');
      } else this.#blank(this.#at + (this.#text[this.#at] === '\\' ? 2 : 1));
    }
    this.#keep(1);
  }

  #regex() {
    let end = this.#at + 1;
    for (let isInSet = false; end < this.#text.length && (isInSet || this.#text[end] !== '/'); end++) {
      if (this.#text[end] === '\\') end++;
      else if (this.#text[end] === '[') isInSet = true;
      else if (this.#text[end] === ']') isInSet = false;
    }
    const flags = /^[a-z]*/.exec(this.#text.slice(end + 1))[0];
    const line = this.code.split('\n').length;
    this.regexes.push({ source: this.#text.slice(this.#at + 1, end), flags, line });
    this.#keep(1);
    this.#blank(end);
    this.#keep(1);
    this.#blank(this.#at + flags.length);
  }

  #keep(length) {
    this.code += this.#text.slice(this.#at, this.#at + length);
    this.#at += length;
  }

  #blank(end) {
    this.code += this.#text.slice(this.#at, end).replaceAll(/[^\n]/g, ' ');
    this.#at = end;
  }

  #indexOf(text) {
    const found = this.#text.indexOf(text, this.#at);
    return found < 0 ? this.#text.length : found;
  }
}
