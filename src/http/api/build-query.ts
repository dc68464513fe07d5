/** Reads the parameters of `POST /build`, which both builders have. */
import { invalid, messageOf } from '../../errors/engine-error.js';
import { familiarString, parseReference, withDefaultTag } from '../../images/reference.js';
import type { Ulimit } from '../../ports/container.js';
import type { Query } from '../query.js';

const MAX_SHOWN_CHARS = 200;

/** Returns the builder that is asked for. @throws EngineError invalid for what neither of them does. */
export function requireBuilder(query: Query): 'classic' | 'buildkit' {
  const version = query.text('version');
  if (!['', '1', '2'].includes(version)) throw invalid(`invalid version ${JSON.stringify(version)}`);
  if (query.all('securityopt').some((option) => option !== ''))
    throw invalid('security options are not supported on linux');
  if (query.flag('squash')) throw invalid('squash is only supported with experimental mode');
  if (!['', 'default'].includes(query.text('isolation')))
    throw invalid(`unsupported isolation: ${JSON.stringify(query.text('isolation'))}`);
  return version === '2' ? 'buildkit' : 'classic';
}

/** Returns the arguments; one without a value is only mentioned. */
export function buildArgs(query: Query): Map<string, string | undefined> {
  return new Map([...members(query.text('buildargs'), 'build args')].map(([key, value]) => [key, value ?? undefined]));
}

export function labels(query: Query): Map<string, string> {
  return new Map([...members(query.text('labels'), 'labels')].map(([key, value]) => [key, value ?? '']));
}

/**
 * Returns the images whose histories, or caches, are to be used. One may be '' or no name of an image: dockerd takes
 * such a list, as scripts send it whose variable is empty, and finds nothing under it.
 */
export function cacheImages(query: Query): string[] {
  const text = query.text('cachefrom');
  const names = text === '' ? [] : (parsed(text, 'cachefrom') ?? []);
  const isName = (name: unknown): name is string | null => name === null || typeof name === 'string';
  if (!Array.isArray(names) || !names.every(isName)) throw invalid('error reading cachefrom: not a list of strings');
  return names.map((name) => name ?? '');
}

/** Returns the names of the image that is made, in their familiar form, each once. */
export function imageNames(query: Query): string[] {
  const names = query
    .all('t')
    .filter((name) => name !== '')
    .map(imageName);
  return [...new Set(names)];
}

/** @throws EngineError invalid that names the parameter, since a request may have many. */
function imageName(written: string): string {
  try {
    const reference = parseReference(written);
    if (reference.digest !== undefined) throw invalid('build tag cannot contain a digest');
    return familiarString(withDefaultTag(reference));
  } catch (error) {
    const shown = JSON.stringify(written.slice(0, MAX_SHOWN_CHARS));
    throw invalid(`invalid t ${shown}: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the limits. Clients of Go write a list without members, and a limit that is none, as `null`. */
export function ulimits(query: Query): Ulimit[] {
  const text = query.text('ulimits');
  const value = text === '' ? [] : (parsed(text, 'ulimit settings') ?? []);
  if (!Array.isArray(value)) throw invalid('error reading ulimit settings: not a list');
  const limits = value.filter((one: unknown) => one !== null);
  return limits.map((one: unknown) => {
    const { Name, Soft, Hard } = one as Partial<Record<keyof Ulimit, unknown>>;
    if (typeof Name !== 'string' || typeof Soft !== 'number' || typeof Hard !== 'number')
      throw invalid('error reading ulimit settings: a limit has a name and two numbers');
    return { Name, Soft, Hard };
  });
}

/** An output that a client wants, as exporters of BuildKit are asked for. */
export interface QueryOutput {
  /** Empty when the client names none. */
  readonly type: string;
  readonly attrs: Readonly<Record<string, string>>;
}

/**
 * Returns the outputs; none: an image in the store. Clients of Go write a list without members as `null`.
 * @throws EngineError invalid for what cannot be read, in both versions of the builder, as dockerd does.
 */
export function buildOutputs(query: Query): QueryOutput[] {
  const refusal = (why: string): Error => invalid(`invalid outputs specified: ${why}`);
  const text = query.text('outputs');
  if (text === '') return [];
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refusal(messageOf(error));
  }
  const list = value ?? [];
  if (!Array.isArray(list)) throw refusal('not a list');
  return list.map((one: unknown) => {
    if (one !== null && (typeof one !== 'object' || Array.isArray(one))) throw refusal('an output is not an object');
    const { Type, Attrs } = (one ?? {}) as { readonly Type?: unknown; readonly Attrs?: unknown };
    const attrs = Object.entries(Attrs ?? {}) as [string, unknown][];
    const isText = (entry: [string, unknown]): entry is [string, string] => typeof entry[1] === 'string';
    if (typeof (Type ?? '') !== 'string' || typeof (Attrs ?? {}) !== 'object' || !attrs.every(isText))
      throw refusal('an output has a type, which is a string, and attributes, which are strings');
    return { type: (Type ?? '') as string, attrs: Object.fromEntries(attrs) };
  });
}

/** Reads a JSON object of strings. */
function members(text: string, shown: string): Map<string, string | null> {
  if (text === '') return new Map();
  const value = parsed(text, shown);
  if (value === null) return new Map();
  const isMap = typeof value === 'object' && !Array.isArray(value);
  if (!isMap || !Object.values(value).every((one) => one === null || typeof one === 'string'))
    throw invalid(`error reading ${shown}: not an object of strings`);
  return new Map(Object.entries(value) as [string, string | null][]);
}

/** @param shown says in errors which parameter it is. */
function parsed(text: string, shown: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw invalid(`error reading ${shown}: ${messageOf(error)}`, { cause: error });
  }
}
