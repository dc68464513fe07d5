/** Reads which caches a client wants a build to use and to make. */
import { parseBool } from '../../build/dockerfile/go-values.js';
import { invalid } from '../../errors/engine-error.js';
import type { CacheSource } from '../../ports/build.js';
import { readCsv } from './frontend-attrs.js';
import { clientContent, type OrderedBuild } from './ordered-build.js';

/** More than anybody names; each one costs requests. */
const MAX_SOURCES = 64;

/**
 * Returns the caches to use. Clients tell frontends of them in attributes: in a JSON list, or, the older ones, as
 * names of images. @throws EngineError invalid for what cannot be read.
 */
export function cacheSources(build: OrderedBuild): CacheSource[] {
  const { attrs, cacheImports } = build.order;
  const written = attrs.get('cache-imports');
  const older = readCsv(attrs.get('cache-from') ?? '').map((ref) => source('registry', { ref }));
  const all = [
    ...(written === undefined ? older : listed(written)),
    ...[...cacheImports, ...(build.job.request.cache?.imports ?? [])].map(({ type, attrs: given }) =>
      source(type, given),
    ),
  ];
  const byText = new Map(all.map((one) => [JSON.stringify([one.type, [...one.attributes]]), one]));
  if (byText.size > MAX_SOURCES) throw invalid(`more than ${MAX_SOURCES} caches to import`);
  return [...byText.values()].map((one) =>
    one.type === 'local' ? { ...one, content: clientContent(build, one.attributes.get('src') ?? '') } : one,
  );
}

/** True when the image is to have the cache in its configuration. */
export function wantsInlineCache({ job, attrs }: OrderedBuild): boolean {
  const isAsked = job.request.cache?.exports.some(({ type }) => type === 'inline') === true;
  return isAsked || parseBool(attrs.buildArgs.get('BUILDKIT_INLINE_CACHE') ?? '') === true;
}

function source(type: string, attrs: Readonly<Record<string, string>>): CacheSource {
  return { type, attributes: new Map(Object.entries(attrs)) };
}

function listed(text: string): CacheSource[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(`failed to unmarshal cache-imports (${JSON.stringify(text.slice(0, 200))})`, { cause: error });
  }
  if (!Array.isArray(value)) throw invalid('failed to unmarshal cache-imports: not a list');
  return value.map((one: unknown) => {
    const { Type, Attrs } = (one ?? {}) as { readonly Type?: unknown; readonly Attrs?: unknown };
    const entries = Object.entries(Attrs ?? {});
    if (typeof Type !== 'string' || !entries.every((entry): entry is [string, string] => typeof entry[1] === 'string'))
      throw invalid('failed to unmarshal cache-imports: an import has a type and attributes');
    return source(Type, Object.fromEntries(entries));
  });
}
