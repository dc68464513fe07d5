/** Reads manifests and indexes of the Docker schema 2 and OCI formats. */
import { dataLoss, invalid, messageOf } from '../errors/engine-error.js';
import type { OciDescriptor, OciPlatform, PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { ownMember } from '../text/own-member.js';
import { parseForeignJson } from '../text/foreign-json.js';
import type { JsonLimits } from '../text/json-scan.js';

export interface ManifestPlatform {
  readonly os: string;
  readonly architecture: string;
  readonly variant: string;
}

/** A platform as an index names it. */
export interface EntryPlatform extends ManifestPlatform {
  readonly osVersion: string;
  readonly osFeatures: readonly string[];
}

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly platform: EntryPlatform | undefined;
  readonly annotations: Readonly<Record<string, string>> | undefined;
}

export interface ImageManifest {
  readonly kind: 'image';
  readonly mediaType: string;
  readonly config: Descriptor;
  /** The lowest layer first. */
  readonly layers: readonly Descriptor[];
}

export interface IndexManifest {
  readonly kind: 'index';
  readonly mediaType: string;
  readonly manifests: readonly Descriptor[];
}

const OCI_MANIFEST = 'application/vnd.oci.image.manifest.v1+json';
const OCI_INDEX = 'application/vnd.oci.image.index.v1+json';
const MANIFEST_TYPES: readonly string[] = ['application/vnd.docker.distribution.manifest.v2+json', OCI_MANIFEST];
const INDEX_TYPES: readonly string[] = ['application/vnd.docker.distribution.manifest.list.v2+json', OCI_INDEX];
const SCHEMA1_TYPES = [
  'application/vnd.docker.distribution.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v1+prettyjws',
];

/** Schema 1 is asked for only so that its refusal can be explained. */
export const ACCEPTED_MANIFESTS = [...MANIFEST_TYPES, ...INDEX_TYPES, ...SCHEMA1_TYPES].join(', ');

const CONFIG_TYPES = new Set([
  'application/vnd.docker.container.image.v1+json',
  'application/vnd.oci.image.config.v1+json',
  // Registries and old clients wrote this type before the types were settled.
  'application/octet-stream',
  'application/json',
  'text/html',
  '',
]);
const CONFIG_CLASSES: Readonly<Record<string, string>> = { 'application/vnd.docker.plugin.v1+json': 'plugin' };

const LAYER_TYPE = new RegExp(
  '^application/vnd\\.(?:docker\\.image\\.rootfs\\.(?:diff|foreign\\.diff)\\.tar(?:\\.gzip|\\.zstd)?|' +
    'oci\\.image\\.layer\\.(?:nondistributable\\.)?v1\\.tar(?:\\+gzip|\\+zstd)?)$',
);
/** Statements about an image, which lie in its index as a manifest has its layers. */
export const STATEMENT_TYPE = /^application\/vnd\.in-toto\+json$/;
/** An overlay mount can carry so many layers, with room for the container's own. */
const MAX_LAYERS = 500;
/** An index has some dozens of images, of which each has some annotations. */
const LIMITS: JsonLimits = { bytes: 4 << 20, depth: 64, values: 40_000, members: 5000 };

/**
 * Reads a manifest. `name` is used in messages; `configTypes` and `layerType` are those of images unless something
 * else is wanted.
 * Throws `invalid` for schema 1, for documents that are not what is wanted and for unknown layer types; `data-loss` for
 * a malformed document.
 */
export function parseManifest(
  bytes: Buffer,
  contentType: string | undefined,
  name: string,
  configTypes: ReadonlySet<string> = CONFIG_TYPES,
  layerType: RegExp = LAYER_TYPE,
): ImageManifest | IndexManifest {
  const document = objectOf(parseJson(bytes), 'manifest');
  const declared = typeof document['mediaType'] === 'string' ? document['mediaType'] : undefined;
  const received = contentType?.split(';', 1)[0]?.trim().toLowerCase();
  if (document['schemaVersion'] === 1 || SCHEMA1_TYPES.includes(received ?? '')) throw schema1Refused(name);
  if (document['schemaVersion'] !== 2) throw malformed('unsupported schema version');
  const known = [...MANIFEST_TYPES, ...INDEX_TYPES];
  if (declared !== undefined && received !== undefined && known.includes(received) && declared !== received) {
    throw malformed(`mediaType in manifest should be '${received}' not '${declared}'`);
  }
  const mediaType = received !== undefined && known.includes(received) ? received : declared;
  // OCI documents may leave their type out: then their members tell.
  const isIndex = mediaType === undefined ? 'manifests' in document : INDEX_TYPES.includes(mediaType);
  if (isIndex)
    return {
      kind: 'index',
      mediaType: mediaType ?? OCI_INDEX,
      manifests: descriptorsOf(document['manifests'], 'manifests'),
    };
  if (mediaType !== undefined && !MANIFEST_TYPES.includes(mediaType))
    throw invalid(`unsupported manifest media type: ${mediaType}`, { code: 'UNSUPPORTED_MANIFEST' });

  const config = descriptorOf(document['config'], 'config');
  if (!configTypes.has(config.mediaType)) {
    const kind = ownMember(CONFIG_CLASSES, config.mediaType) ?? 'unknown';
    throw invalid(`Encountered remote ${JSON.stringify(config.mediaType)}(${kind}) when fetching`, {
      code: 'NOT_AN_IMAGE',
    });
  }
  const layers = descriptorsOf(document['layers'], 'layers');
  if (layers.length > MAX_LAYERS) throw malformed(`more than ${MAX_LAYERS} layers`);
  for (const layer of layers) {
    if (!layerType.test(layer.mediaType))
      throw invalid(`unsupported media type ${layer.mediaType}`, { code: 'UNSUPPORTED_LAYER' });
  }
  return { kind: 'image', mediaType: mediaType ?? OCI_MANIFEST, config, layers };
}

const malformed = (message: string): Error => dataLoss(`invalid manifest: ${message}`, { code: 'BAD_MANIFEST' });

function schema1Refused(name: string): Error {
  return invalid(
    '[DEPRECATION NOTICE] Docker Image Format v1 and Docker Image manifest version 2, ' +
      `schema 1 support is disabled: ask the author of ${name} to publish it in the OCI format or as schema 2`,
    { code: 'SCHEMA1_REFUSED' },
  );
}

function parseJson(bytes: Buffer): unknown {
  try {
    return parseForeignJson(bytes, LIMITS);
  } catch (error) {
    throw dataLoss(`invalid manifest: ${messageOf(error)}`, { code: 'BAD_MANIFEST', cause: error });
  }
}

function objectOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw malformed(`${what} is not an object`);
  return value as Readonly<Record<string, unknown>>;
}

function descriptorsOf(value: unknown, what: string): Descriptor[] {
  if (!Array.isArray(value)) throw malformed(`${what} is not an array`);
  return value.map((item) => descriptorOf(item, what));
}

function descriptorOf(value: unknown, what: string): Descriptor {
  const { mediaType, digest, size, platform, annotations } = objectOf(value, what);
  if (typeof digest !== 'string' || !/^sha256:[a-f0-9]{64}$/.test(digest))
    throw malformed(`${what}: unsupported digest ${JSON.stringify(digest)}`);
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) throw malformed(`${what}: bad size`);
  return {
    mediaType: typeof mediaType === 'string' ? mediaType : '',
    digest: digest as Digest,
    sizeBytes: size,
    platform: platform === undefined || platform === null ? undefined : platformOf(platform),
    annotations: annotations === undefined || annotations === null ? undefined : textsOf(annotations),
  };
}

/**
 * Reads the platform in an entry of an index or in an image configuration, which spell it alike. Throws `data-loss` if
 * it is no object.
 */
export function platformOf(value: unknown): EntryPlatform {
  const { os, architecture, variant, 'os.version': osVersion, 'os.features': osFeatures } = objectOf(value, 'platform');
  const text = (member: unknown): string => (typeof member === 'string' ? member : '');
  const features = Array.isArray(osFeatures) ? osFeatures.filter((feature) => typeof feature === 'string') : [];
  return {
    os: text(os),
    architecture: text(architecture),
    variant: text(variant),
    osVersion: text(osVersion),
    osFeatures: features,
  };
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(objectOf(value, 'annotations')).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string',
    ),
  );
}

/** Returns the descriptor as it is in JSON, without empty members. */
export function ociDescriptor({ mediaType, digest, sizeBytes, platform, annotations }: Descriptor): OciDescriptor {
  return {
    mediaType,
    digest,
    size: sizeBytes,
    ...(platform ? { platform: ociPlatform(platform) } : {}),
    ...(annotations ? { annotations } : {}),
  };
}

/** Returns the platform as it is in JSON, without empty members. */
export function ociPlatform({ os, architecture, variant, osVersion, osFeatures }: EntryPlatform): OciPlatform {
  return {
    architecture,
    os,
    ...(osVersion === '' ? {} : { 'os.version': osVersion }),
    ...(osFeatures.length === 0 ? {} : { 'os.features': osFeatures }),
    ...(variant === '' ? {} : { variant }),
  };
}

/**
 * A larger index is remembered with the image's own entry only, because it stays in memory as long as the image exists.
 */
const MAX_REMEMBERED_BYTES = 256 << 10;

/**
 * Returns the facts to remember about the manifest `own` of an image. @param target is the document that a name led to,
 * and `parsed` its content.
 */
export function publishedAs(
  { digest, sizeBytes }: Pick<Descriptor, 'digest' | 'sizeBytes'>,
  parsed: ImageManifest | IndexManifest,
  own: Digest,
): PublishedImage {
  const target = { mediaType: parsed.mediaType, digest, size: sizeBytes };
  if (parsed.kind === 'image') return { target, manifests: [target], own };
  const manifests =
    sizeBytes <= MAX_REMEMBERED_BYTES ? parsed.manifests : parsed.manifests.filter((entry) => entry.digest === own);
  return { target, manifests: manifests.map(ociDescriptor), own };
}
