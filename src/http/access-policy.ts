/** The policy of a listener that does not serve everything (docs/authorization.md, "Scoped sockets"). */
import type { AccessRule } from '../config/scoped-sockets.js';
import type { RouteMatch } from './router.js';

/**
 * Returns true when the request may be served. The path is the one that the handler sees, so another spelling of it
 * makes no difference.
 */
export type AccessPolicy = (method: string, match: RouteMatch) => boolean;

/** Returns a policy that allows what at least one rule names. */
export function accessPolicy(rules: readonly AccessRule[]): AccessPolicy {
  const compiled = rules.map(({ method, path }) => ({
    method,
    pieces: path.split('*'),
    isOpenEnded: path.endsWith('*'),
  }));
  return (method, { path, route }) => {
    // Clients write into a container over such a route, whatever its method says.
    const isWritableGet = route.method === 'GET' && route.hijack !== undefined;
    return compiled.some(
      (rule) =>
        allowsMethod(rule.method, method) &&
        matches(rule.pieces, path) &&
        !(isWritableGet && rule.isOpenEnded && rule.method !== '*'),
    );
  };
}

/** Returns true when a rule's method covers that of the request: a rule for GET covers HEAD, which tells less. */
function allowsMethod(rule: string, method: string): boolean {
  return rule === '*' || rule === method || (rule === 'GET' && method === 'HEAD');
}

/**
 * Returns true when the pieces stand in the path in this order, with at least one character between any two of them,
 * the first at its start and the last at its end. It takes linear time, which is not certain for a regular expression.
 */
function matches(pieces: readonly string[], path: string): boolean {
  const [first = '', ...rest] = pieces;
  const last = rest.pop();
  if (last === undefined) return path === first;
  if (!path.startsWith(first)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = path.indexOf(piece, at + 1);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return path.endsWith(last) && path.length - last.length > at;
}
