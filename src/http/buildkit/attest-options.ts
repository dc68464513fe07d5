/** Reads which attestations a client wants of an image. */
import type { ProvenanceMode, ProvenanceOptions, ProvenanceVersion } from '../../build/outputs/provenance.js';
import { parseBool } from '../../build/dockerfile/go-values.js';
import { internal } from '../../errors/engine-error.js';
import type { ScanOrder } from '../../ports/build.js';
import { readCsv } from './frontend-attrs.js';

const PREFIX = 'attest:';
const PROVENANCE = 'provenance';
const SBOM = 'sbom';
/** The program that BuildKit runs when the client names none. */
const GENERATOR = 'docker/buildkit-syft-scanner:stable-1';
const MAX_SHOWN_CHARS = 100;
/** It becomes the end of the name of a variable. */
const PARAMETER = /^[A-Za-z0-9_.-]{1,100}$/;
const MODES: ReadonlyMap<string, ProvenanceMode> = new Map([
  ['min', 'min'],
  ['max', 'max'],
  ['full', 'max'],
]);
const VERSIONS: ReadonlyMap<string, ProvenanceVersion> = new Map([
  ['v0.2', 'v0.2'],
  ['v1', 'v1'],
]);

/**
 * Returns how the provenance of an image is to be; undefined: none is wanted. What clients add by themselves
 * (`inline-only`) is left out: its times and numbers would make every image another one.
 * @throws EngineError for what cannot be attested.
 */
export function provenanceOptions(attrs: ReadonlyMap<string, string>): ProvenanceOptions | undefined {
  let found: ProvenanceOptions | undefined;
  for (const [key, value] of attrs) {
    if (!key.startsWith(PREFIX)) continue;
    const type = key.slice(PREFIX.length);
    if (type === SBOM) continue;
    if (type !== PROVENANCE)
      throw internal(`unknown attestation type ${JSON.stringify(type.slice(0, MAX_SHOWN_CHARS))}`);
    const fields = fieldsOf(type, value);
    if (isSet(fields, 'disabled') || isSet(fields, 'inline-only')) continue;
    found = optionsOf(fields);
  }
  return found;
}

/** Returns which program is to look into the result; undefined: none is. @throws EngineError for what names none. */
export function scanOrder(attrs: ReadonlyMap<string, string>): ScanOrder | undefined {
  const value = attrs.get(PREFIX + SBOM);
  if (value === undefined) return undefined;
  const fields = new Map(pairsOf(SBOM, value));
  if (isSet(fields, 'disabled')) return undefined;
  const generator = fields.get('generator') ?? GENERATOR;
  if (generator === '') throw internal('sbom generator cannot be empty');
  const parameters = new Map(fields);
  for (const own of ['generator', 'disabled']) parameters.delete(own);
  for (const name of parameters.keys())
    if (!PARAMETER.test(name))
      throw internal(`invalid parameter ${JSON.stringify(name.slice(0, MAX_SHOWN_CHARS))} of sbom`);
  return { generator, parameters };
}

function optionsOf(fields: ReadonlyMap<string, string>): ProvenanceOptions {
  const mode = MODES.get(fields.get('mode') ?? 'max');
  if (mode === undefined) throw internal(`invalid mode ${JSON.stringify(fields.get('mode'))}`);
  const version = VERSIONS.get(fields.get('version') ?? 'v0.2');
  if (version === undefined) throw internal(`invalid version ${JSON.stringify(fields.get('version'))}`);
  return { mode, version, builderId: fields.get('builder-id') ?? '', isReproducible: isSet(fields, 'reproducible') };
}

function fieldsOf(type: string, value: string): Map<string, string> {
  return new Map(pairsOf(type, value).map(([name, text]) => [name.toLowerCase(), text]));
}

function pairsOf(type: string, value: string): [name: string, value: string][] {
  return readCsv(value).map((field) => {
    const mark = field.indexOf('=');
    if (mark < 1) throw internal(`invalid value ${JSON.stringify(field)} of the attestation ${type}`);
    return [field.slice(0, mark), field.slice(mark + 1)];
  });
}

function isSet(fields: ReadonlyMap<string, string>, name: string): boolean {
  const value = fields.get(name);
  if (value === undefined) return false;
  const parsed = parseBool(value);
  if (parsed === undefined) throw internal(`failed to parse ${name} flag ${JSON.stringify(value)}`);
  return parsed;
}
