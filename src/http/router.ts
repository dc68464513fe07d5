/**
 * Finds the route of a request. Paths without parameters, in every served version, are one look-up in a map; the others
 * are compared with the routes that share their first segment.
 */
import { API_VERSIONS, ApiVersion, MAX_API_VERSION, MIN_API_VERSION } from './api-version.js';
import type { Route } from './route.js';

/** A request that a route serves. */
export interface RouteMatch {
  readonly kind: 'route';
  readonly route: Route;
  readonly version: ApiVersion;
  /** Path, decoded and without version prefix. */
  readonly path: string;
  readonly params: ReadonlyMap<string, string>;
}

export type Resolution =
  | RouteMatch
  | { readonly kind: 'options' }
  | { readonly kind: 'not-found' }
  | { readonly kind: 'bad-path' }
  /** The path with doubled slashes and dot segments removed, encoded. */
  | { readonly kind: 'redirect'; readonly path: string }
  | { readonly kind: 'version-too-old' | 'version-too-new'; readonly version: string };

const NOT_FOUND: Resolution = { kind: 'not-found' };
const BAD_PATH: Resolution = { kind: 'bad-path' };
const OPTIONS: Resolution = { kind: 'options' };
const NO_PARAMS: ReadonlyMap<string, string> = new Map();

/** A path without parameters, as clients send it. */
interface ExactPath {
  readonly method: string;
  readonly path: string;
  readonly match: RouteMatch;
}

interface PatternRoute {
  readonly route: Route;
  /** Expression for the whole path, with one group for each parameter. */
  readonly expression: RegExp;
  readonly names: readonly string[];
  /** Literal text that the path must start and end with: it rules out nearly everything before the expression runs. */
  readonly prefix: string;
  readonly suffix: string;
}

export class Router {
  /** Routes by complete path as clients send it, version prefix included. */
  readonly #exact = new Map<string, Map<string, ExactPath>>();
  /** The one of them that was asked for last: to compare with that takes a tenth of the time of two look-ups. */
  #last: ExactPath | undefined;
  /** Routes by method and first segment (`GET containers`), in the order of their declaration. */
  readonly #patterns = new Map<string, PatternRoute[]>();

  /** @throws Error when a pattern is not well formed or declared twice. */
  constructor(routes: readonly Route[]) {
    const declared = new Set<string>();
    for (const route of routes) {
      const name = `${route.method} ${route.pattern}`;
      if (declared.has(name)) throw new Error(`route ${name} is declared twice`);
      declared.add(name);
      if (route.pattern.includes('{')) this.#addPattern(route);
      else this.#addExact(route);
    }
  }

  /** Finds the route of a request. @param path as the client sent it, without the query. */
  resolve(method: string, path: string): Resolution {
    const last = this.#last;
    if (last?.path === path && last.method === method) return last.match;
    const exact = this.#exact.get(path)?.get(method);
    if (exact === undefined) return this.#resolveSlowly(method, path);
    this.#last = exact;
    return exact.match;
  }

  #addExact(route: Route): void {
    const add = (path: string, version: ApiVersion): void => {
      const byMethod = this.#exact.get(path) ?? new Map<string, ExactPath>();
      const match: RouteMatch = { kind: 'route', route, version, path: route.pattern, params: NO_PARAMS };
      this.#exact.set(path, byMethod.set(route.method, { method: route.method, path, match }));
    };
    add(route.pattern, MAX_API_VERSION);
    for (const version of API_VERSIONS) add(`/v${version.text}${route.pattern}`, version);
  }

  #addPattern(route: Route): void {
    const pieces = route.pattern.split(/\{(\w+(?:\.\.\.)?)\}/);
    const names = pieces.filter((_, i) => i % 2 === 1).map((name) => name.replace('...', ''));
    const expression = pieces
      .map((piece, i) => {
        if (i % 2 === 0) return piece.replaceAll('.', '\\.');
        return piece.endsWith('...') ? '(.+)' : '([^/]+)';
      })
      .join('');
    const prefix = pieces[0] ?? '';
    const suffix = pieces.at(-1) ?? '';
    if (!/^\/\w+\//.test(prefix)) throw new Error(`route ${route.pattern} does not start with a literal segment`);
    const key = `${route.method} ${firstSegment(prefix)}`;
    const routes = this.#patterns.get(key) ?? [];
    routes.push({ route, expression: new RegExp(`^${expression}$`, 's'), names, prefix, suffix });
    this.#patterns.set(key, routes);
  }

  #resolveSlowly(method: string, rawPath: string): Resolution {
    const decoded = decodePath(rawPath);
    if (decoded === undefined) return BAD_PATH;
    const clean = cleanPath(decoded);
    if (clean !== decoded) return { kind: 'redirect', path: encodeURI(clean) };

    const [versionText, path] = splitVersion(decoded);
    const version = versionText === undefined ? MAX_API_VERSION : new ApiVersion(versionText);
    const found = method === 'OPTIONS' ? OPTIONS : this.#find(method, path, version);
    // An unknown path is unknown in every version.
    if (found === undefined) return NOT_FOUND;
    if (version.compare(MIN_API_VERSION) < 0) return { kind: 'version-too-old', version: version.text };
    if (version.compare(MAX_API_VERSION) > 0) return { kind: 'version-too-new', version: version.text };
    return found;
  }

  #find(method: string, path: string, version: ApiVersion): RouteMatch | undefined {
    const exact = this.#exact.get(path)?.get(method)?.match;
    if (exact !== undefined && exact.path === path) return { ...exact, version };
    for (const candidate of this.#patterns.get(`${method} ${firstSegment(path)}`) ?? []) {
      if (!path.startsWith(candidate.prefix) || !path.endsWith(candidate.suffix)) continue;
      const values = candidate.expression.exec(path);
      if (values === null) continue;
      const params = new Map(candidate.names.map((name, i) => [name, values[i + 1] ?? '']));
      return { kind: 'route', route: candidate.route, version, path, params };
    }
    return undefined;
  }
}

/** Returns `containers` for `/containers/x/json`. */
function firstSegment(path: string): string {
  const end = path.indexOf('/', 1);
  return end < 0 ? path.slice(1) : path.slice(1, end);
}

function decodePath(path: string): string | undefined {
  if (!path.includes('%')) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    // The text is no valid encoding; the caller answers 400.
    return undefined;
  }
}

function cleanPath(path: string): string {
  if (!path.includes('//') && !path.includes('/.')) return path;
  const segments: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  const slash = path.endsWith('/') && segments.length > 0 ? '/' : '';
  return `/${segments.join('/')}${slash}`;
}

/** Takes `/v1.41` off a path; the version is undefined when there is none. */
function splitVersion(path: string): [version: string | undefined, rest: string] {
  if (!path.startsWith('/v')) return [undefined, path];
  const end = path.indexOf('/', 2);
  if (end < 0) return [undefined, path];
  const version = path.slice(2, end);
  return /^[0-9.]+$/.test(version) ? [version, path.slice(end)] : [undefined, path];
}
