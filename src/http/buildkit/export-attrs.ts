/** Reads the attributes by which a client says what image an exporter is to make. */
import { ImageAnnotations } from '../../build/outputs/annotations.js';
import type { Compression } from '../../build/outputs/compress-layer.js';
import type { ExportOptions } from '../../build/outputs/image-export.js';
import type { SetOptions } from '../../build/outputs/image-set.js';
import { parseBool } from '../../build/dockerfile/go-values.js';
import { internal } from '../../errors/engine-error.js';
import { canonicalString, familiarString, parseReference, withDefaultTag } from '../../images/reference.js';

export interface ImageName {
  /** Such as `docker.io/library/app:latest`. */
  readonly canonical: string;
  /** Without the tag that is meant where none is written: clients and events tell this one. */
  readonly written: string;
  /** Such as `app`, as it is written. */
  readonly familiar: string;
}

export interface Exporter {
  readonly type: string;
  readonly attrs: ReadonlyMap<string, string>;
  /** Its number in the request, by which the client knows it. */
  readonly index: number;
  /** Set when the client wants attestations. */
  readonly attest?: SetOptions['attest'];
}

type Attributes = ReadonlyMap<string, string>;

const COMPRESSIONS: ReadonlySet<string> = new Set(['gzip', 'zstd', 'uncompressed']);
const MS_PER_SECOND = 1000;
/** Attributes that are true or false, of files and of an image. */
const FILE_FLAGS = ['platform-split'];
const IMAGE_FLAGS = [
  'force-compression',
  'name-canonical',
  'oci-mediatypes',
  'push',
  'push-by-digest',
  'registry.insecure',
  'rewrite-timestamp',
  'store',
  'tar',
];

/** Reads what an exporter is told before anything is built for it. @throws EngineError for a value that is none. */
export function requireReadable(exporter: Exporter, buildArgs: Attributes): void {
  const { type, attrs } = exporter;
  const isFiles = type === 'local' || type === 'tar';
  for (const name of isFiles ? FILE_FLAGS : IMAGE_FLAGS) flag(attrs, name);
  dateEpoch(attrs, buildArgs);
  if (type === 'oci' || type === 'docker') exportOptions(type, exporter, buildArgs);
}

/** @throws EngineError for a name that cannot be given. */
export function namesOf(attrs: Attributes): ImageName[] {
  return (attrs.get('name') ?? '')
    .split(',')
    .filter((name) => name !== '')
    .map((name) => {
      const reference = parseReference(name);
      if (reference.digest !== undefined) throw internal('build tag cannot contain a digest');
      const canonical = canonicalString(withDefaultTag(reference));
      return { canonical, familiar: familiarString(reference), written: canonicalString(reference) };
    });
}

/** @throws EngineError for a value that is none. */
export function flag(attrs: Attributes, name: string): boolean | undefined {
  const value = attrs.get(name);
  if (value === undefined) return undefined;
  const parsed = value === '' ? true : parseBool(value);
  if (parsed === undefined) throw internal(`non-bool value ${JSON.stringify(value)} specified for ${name}`);
  return parsed;
}

/**
 * Reads what the exporters `oci` and `docker` are told. OCI's types take the place of Docker's where those cannot say
 * what is wanted.
 * @param buildArgs of the build, which may have `SOURCE_DATE_EPOCH`.
 */
export function exportOptions(
  type: 'oci' | 'docker',
  { attrs, attest }: Pick<Exporter, 'attrs' | 'attest'>,
  buildArgs: Attributes,
): ExportOptions {
  const annotations = new ImageAnnotations(attrs);
  const compression = compressionOf(attrs);
  const epoch = dateEpoch(attrs, buildArgs);
  const wantsOci = flag(attrs, 'oci-mediatypes') ?? type === 'oci';
  return {
    names: namesOf(attrs).map(({ canonical }) => canonical),
    format: wantsOci || compression === 'zstd' || !annotations.isEmpty || attest ? 'oci' : 'docker',
    isLoadable: type === 'docker',
    annotations,
    ...(attest && { attest }),
    compression,
    level: levelOf(attrs.get('compression-level')),
    epoch: rewriteEpoch(attrs, buildArgs),
    created: new Date(epoch === undefined ? Date.now() : epoch * MS_PER_SECOND).toISOString().replace(/\.\d+Z$/, 'Z'),
  };
}

/** Returns what the names of statements beside files begin with. @throws EngineError for what names no file there. */
export function statementPrefix(attrs: Attributes): string {
  const prefix = attrs.get('attestation-prefix') ?? '';
  if (!/^[^/\0]{0,100}$/.test(prefix))
    throw internal(`invalid value ${JSON.stringify(prefix.slice(0, 200))} of attestation-prefix`);
  return prefix;
}

/** Returns the time that files are to have at most, in seconds since 1970; undefined: they keep theirs. */
export function rewriteEpoch(attrs: Attributes, buildArgs: Attributes): number | undefined {
  return flag(attrs, 'rewrite-timestamp') ? dateEpoch(attrs, buildArgs) : undefined;
}

/** Returns the `SOURCE_DATE_EPOCH` of an output, in seconds since 1970: all files of a directory or tar have it. */
export function dateEpoch(attrs: Attributes, buildArgs: Attributes): number | undefined {
  return readEpoch(attrs.get('source-date-epoch') ?? buildArgs.get('SOURCE_DATE_EPOCH'));
}

export function compressionOf(attrs: Attributes): Compression {
  const compression = attrs.get('compression') ?? 'gzip';
  if (!COMPRESSIONS.has(compression)) throw internal(`unsupported layer compression type: ${compression}`);
  return compression as Compression;
}

export function levelOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,2}$/.test(text)) throw internal(`non-int value ${text} specified for compression-level`);
  return Number(text);
}

/** @throws EngineError internal for a text that is no time. */
export function readEpoch(text: string | undefined): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (!/^\d{1,11}$/.test(text)) {
    const shown = text.slice(0, 100);
    throw internal(
      `invalid SOURCE_DATE_EPOCH: ${shown}: strconv.ParseInt: parsing ${JSON.stringify(shown)}: invalid syntax`,
    );
  }
  return Number(text);
}
