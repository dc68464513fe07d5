/**
 * Finds look-ups by a string that is no literal in objects with free keys: those declared as `Record<string, …>`, where
 * `constructor` and `__proto__` are found, too. Types of other files are known by the names of their members only.
 */
const DECLARED =
  /(?:\b(?:const|let|readonly)\s+|[(,{;]\s*|^\s*)#?([\w$]+)\??\s*:\s*(?:Readonly<|Partial<)*Record<string\b/gm;
const LOOKUP = /([A-Za-z_$][\w$]*)!?(?:\?\.)?\[([^[\]]*(?:\[[^[\]]*\])?[^[\]]*)\]/g;
/** A literal, a number, a unique symbol, or the part of a type. */
const FIXED = /^\s*(?:'[^']*'|"[^"]*"|\d+|Symbol\.\w+|string|number|)\s*$/;

/** Names that a source declares as objects with free keys. */
export function freeKeyed(code) {
  return [...code.matchAll(DECLARED)].map(([, name]) => name);
}

/** Each look-up with its line. @param members names that any source gives to such a member. */
export function openLookups(code, members) {
  const names = new Set([...members, ...freeKeyed(code)]);
  const found = [];
  for (const match of code.matchAll(LOOKUP)) {
    const [text, name, key] = match;
    if (names.has(name) && !FIXED.test(key) && !/^\s*\w+ in /.test(key))
      found.push({ text, line: code.slice(0, match.index).split('\n').length });
  }
  return found;
}
