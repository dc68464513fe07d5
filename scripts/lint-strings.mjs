/**
 * Rules about strings that others choose: clients, registries, archives, containers, plugins. Part of `npm run lint`.
 * - A regular expression takes linear time for every text: see lint/ambiguity.mjs.
 * - A text becomes a regular expression in src/text/pattern.ts only, where its size is bounded.
 * - An object with free keys is asked by `ownMember` or `Object.hasOwn`, or is a Map: see lint/lookups.mjs.
 * What is allowed all the same is listed here, with the reason; an entry that nothing needs any more is an error.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ambiguityOf } from './lint/ambiguity.mjs';
import { freeKeyed, openLookups } from './lint/lookups.mjs';
import { scanSource } from './lint/scan-source.mjs';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');

/** Sources that make an expression of constants, which `ambiguityOf` found linear, or read files of the kernel. */
const MAKERS = new Map([
  ['http/json-body.ts', 'constants'],
  ['http/router.ts', 'our own routes'],
  ['images/reference.ts', 'constants'],
  ['registry/manifest.ts', 'constants'],
  ['runtime/host-facts.ts', 'file of the kernel'],
  ['stats/cgroup-v2.ts', 'file of the kernel'],
  ['supervisor/oci-json.ts', 'a random text of our own'],
  ['sys/files/directory-lock.ts', 'file of the kernel'],
  ['text/pattern.ts', 'the one place for patterns of others'],
]);

/** Expressions that are not linear, by file. */
const REGEXES = new Map();

const CONSTANT_NAMES = 'the names are constants of the source';
const OWN_TEXT = 'the text is one of a few, from the kernel, Node or our own code';
const CHECKED = 'the name was checked before';
/** Look-ups by file, with the reason. */
const LOOKUPS = new Map([
  ['actors/engine/host.ts', { reason: OWN_TEXT, texts: ['MACHINES[arch()]'] }],
  ['http/api/progress.ts', { reason: CONSTANT_NAMES, texts: ['UNITS[unit]'] }],
  ['composition/runtime-choice.ts', { reason: CHECKED, texts: ['runtimes[name]'] }],
  ['config/builder-gc.ts', { reason: CONSTANT_NAMES, texts: ['members[name]'] }],
  ['config/check-host.ts', { reason: CONSTANT_NAMES, texts: ['values[name]'] }],
  ['config/check-values.ts', { reason: CONSTANT_NAMES, texts: ['values[name]'] }],
  ['config/json-schema.ts', { reason: CONSTANT_NAMES, texts: ['properties[member]', 'properties[group]'] }],
  ['config/json-text.ts', { reason: 'the object has no prototype', texts: ['object[name]'] }],
  ['config/suggest.ts', { reason: CHECKED, texts: ['OTHER_NAMES[unknown]'] }],
  ['config/value-types.ts', { reason: CHECKED, texts: ['SECONDS[unit]'] }],
  ['events/filters.ts', { reason: CONSTANT_NAMES, texts: ["Attributes[Type === '     ' ? '    ' : '     ']"] }],
  ['text/object-parts.ts', { reason: 'the name that is no member by itself is told apart', texts: ['filled[name]'] }],
  ['http/api/decode.ts', { reason: CONSTANT_NAMES, texts: ['result[name]'] }],
  ['http/api/stats-view.ts', { reason: CONSTANT_NAMES, texts: ['usage?.[counter]'] }],
  ['http/api/until.ts', { reason: CHECKED, texts: ['UNITS[unit]'] }],
  ['http/authorization.ts', { reason: 'headers of our own replies', texts: ['headers[line.slice(0, colon)]'] }],
  ['http/listener.ts', { reason: OWN_TEXT, texts: ['KIND_BY_ERRNO[errnoOf(cause)]'] }],
  ['http/router.ts', { reason: 'a list', texts: ['values[i + 1]'] }],
  [
    'images/archive/plan.ts',
    { reason: CONSTANT_NAMES, texts: ['entries[at]', 'annotations[NAME_ANNOTATION]', 'annotations[REF_ANNOTATION]'] },
  ],
  ['images/changes.ts', { reason: CHECKED, texts: ['result[place]', 'UNITS[unit]'] }],
  ['logs/drivers/json-decoder.ts', { reason: CHECKED, texts: ['options[stream]'] }],
  ['logs/drivers/json-record.ts', { reason: CHECKED, texts: ['attrs[key]'] }],
  ['logs/drivers/json-encoder.ts', { reason: CHECKED, texts: ['attrs[name]'] }],
  ['logs/drivers/local-format.ts', { reason: CONSTANT_NAMES, texts: ['options[stream]'] }],
  ['logs/options/log-attributes.ts', { reason: CONSTANT_NAMES, texts: ['options[option]'] }],
  ['logs/options/log-options.ts', { reason: CONSTANT_NAMES, texts: ['options[`      ${name}`]'] }],
  ['logs/remote/dial.ts', { reason: OWN_TEXT, texts: ['TEXTS[code]'] }],
  ['logs/remote/fluentd.ts', { reason: CONSTANT_NAMES, texts: ['options[name]'] }],
  ['logs/remote/splunk.ts', { reason: CONSTANT_NAMES, texts: ['options[name]', 'options[option]'] }],
  ['network/dns/names.ts', { reason: CHECKED, texts: ['links[name]'] }],
  ['network/network-options.ts', { reason: CONSTANT_NAMES, texts: ['options[prefix + name]'] }],
  ['network/parent-link.ts', { reason: CHECKED, texts: ['IPVLAN_FLAGS[flag]'] }],
  ['registry/failure.ts', { reason: OWN_TEXT, texts: ['REASONS[code]'] }],
  ['registry/platform.ts', { reason: OWN_TEXT, texts: ['NODE_ARCHITECTURES[arch()]'] }],
  ['runtime/cdi-edits.ts', { reason: CHECKED, texts: ['hooks[hookName]'] }],
  ['runtime/host-facts.ts', { reason: OWN_TEXT, texts: ['ARCHITECTURES[arch()]'] }],
  ['runtime/seccomp.ts', { reason: OWN_TEXT, texts: ['NATIVE[target.architecture]'] }],
  ['stats/cgroup-v1.ts', { reason: CONSTANT_NAMES, texts: ['usage[counter]'] }],
  ['stats/counters.ts', { reason: 'a list', texts: ['values[known.place]'] }],
  ['stats/packed-usages.ts', { reason: CONSTANT_NAMES, texts: ['usage[counter]'] }],
  ['storage/local-mount.ts', { reason: CHECKED, texts: ['options[needed]', 'PROPAGATION[word]'] }],
  ['storage/storage-error.ts', { reason: OWN_TEXT, texts: ['TEXT[code]'] }],
  ['telemetry/logger.ts', { reason: CONSTANT_NAMES, texts: ['COLOURS[name]'] }],
  ['telemetry/metrics.ts', { reason: OWN_TEXT, texts: ['ACTIONS[`${method} ${route}`]'] }],
  ['telemetry/state-dump.ts', { reason: 'a list', texts: ['found[fd]'] }],
  ['text/own-member.ts', { reason: 'the one place for it', texts: ['members[name]'] }],
]);

/** Returns a text for each problem in the sources, which are pairs of a path below src and a text. */
export function problemsOf(sources) {
  const scanned = sources.map(([path, text]) => ({ path, ...scanSource(text) }));
  const members = new Set(scanned.flatMap(({ code }) => freeKeyed(code)));
  return scanned.flatMap(({ path, code, regexes }) => [
    ...regexes.flatMap(({ source, flags, line }) => {
      const problem = ambiguityOf(source, flags);
      return problem === undefined || REGEXES.get(path)?.includes(source)
        ? []
        : [`src/${path}:${line}: /${source}/${flags} ${problem}: split the text by index, or anchor the expression`];
    }),
    ...[...code.matchAll(/\bRegExp\(/g)].flatMap(({ index }) =>
      MAKERS.has(path)
        ? []
        : [`src/${path}:${lineOf(code, index)}: a text becomes a regular expression: use src/text/pattern.ts`],
    ),
    ...openLookups(code, members).flatMap(({ text, line }) =>
      LOOKUPS.get(path)?.texts.includes(text)
        ? []
        : [
            `src/${path}:${line}: ${text} finds inherited members, too: ` +
              'use ownMember of src/text/own-member.ts, or a Map',
          ],
    ),
  ]);
}

function lineOf(code, index) {
  return code.slice(0, index).split('\n').length;
}

/** Entries of the lists above that no source needs. */
export function unneeded(sources) {
  const scanned = new Map(sources.map(([path, text]) => [path, scanSource(text)]));
  const members = new Set([...scanned.values()].flatMap(({ code }) => freeKeyed(code)));
  const isLookedUp = (path, text) =>
    openLookups(scanned.get(path)?.code ?? '', members).some((lookup) => lookup.text === text);
  return [
    ...[...MAKERS.keys()].filter((path) => path !== 'text/pattern.ts' && !scanned.get(path)?.code.includes('RegExp(')),
    ...[...REGEXES].flatMap(([path, texts]) =>
      texts
        .filter((text) => !scanned.get(path)?.regexes.some(({ source }) => source === text))
        .map((text) => `${path} /${text}/`),
    ),
    ...[...LOOKUPS].flatMap(([path, { texts }]) =>
      texts.filter((text) => !isLookedUp(path, text)).map((text) => `${path} ${text}`),
    ),
  ].map((entry) => `scripts/lint-strings.mjs: nothing needs ${entry} any more`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const sources = readdirSync(join(ROOT, 'src'), { recursive: true })
    .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts') && !path.includes('/proto/gen/'))
    .toSorted()
    .map((path) => [path, readFileSync(join(ROOT, 'src', path), 'utf8')]);
  const problems = [...problemsOf(sources), ...unneeded(sources)];
  for (const text of problems) console.error(text);
  if (problems.length > 0) process.exitCode = 1;
}
