/** Reads which attestations a client wants of an image. */
import type { ProvenanceMode, ProvenanceOptions, ProvenanceVersion } from '../../build/outputs/provenance.js';
import { parseBool } from '../../build/dockerfile/go-values.js';
import { internal, notImplemented } from '../../errors/engine-error.js';
import { readCsv } from './frontend-attrs.js';

const PREFIX = 'attest:';
const MAX_SHOWN_CHARS = 100;
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
    const fields = fieldsOf(type, value);
    if (isSet(fields, 'disabled') || isSet(fields, 'inline-only')) continue;
    if (type !== 'provenance') throw unsupported(type);
    found = optionsOf(fields);
  }
  return found;
}

/** Says what the client says itself, for all attestations, of an engine that has no index of an image. */
function unsupported(type: string): Error {
  return notImplemented(
    `attestations of the type ${type.slice(0, MAX_SHOWN_CHARS)} are not supported for the docker driver: switch to a ` +
      'different driver (docker buildx create --driver docker-container), and try again',
  );
}

function optionsOf(fields: ReadonlyMap<string, string>): ProvenanceOptions {
  const mode = MODES.get(fields.get('mode') ?? 'max');
  if (mode === undefined) throw internal(`invalid mode ${JSON.stringify(fields.get('mode'))}`);
  const version = VERSIONS.get(fields.get('version') ?? 'v0.2');
  if (version === undefined) throw internal(`invalid version ${JSON.stringify(fields.get('version'))}`);
  return { mode, version, builderId: fields.get('builder-id') ?? '', isReproducible: isSet(fields, 'reproducible') };
}

function fieldsOf(type: string, value: string): Map<string, string> {
  return new Map(
    readCsv(value).map((field) => {
      const mark = field.indexOf('=');
      if (mark < 1) throw internal(`invalid value ${JSON.stringify(field)} of the attestation ${type}`);
      return [field.slice(0, mark).toLowerCase(), field.slice(mark + 1)];
    }),
  );
}

function isSet(fields: ReadonlyMap<string, string>, name: string): boolean {
  const value = fields.get(name);
  if (value === undefined) return false;
  const parsed = parseBool(value);
  if (parsed === undefined) throw internal(`failed to parse ${name} flag ${JSON.stringify(value)}`);
  return parsed;
}
