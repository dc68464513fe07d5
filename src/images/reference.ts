/**
 * Parses image references by the distribution grammar, and normalises them as registries and clients do: a name without
 * a host belongs to docker.io, a name without a namespace there to `library`.
 */
import { invalid, type EngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { ownMember } from '../text/own-member.js';

export interface ImageReference {
  /** Host with an optional port: `docker.io`, `localhost:5000`, `[::1]:5000`. */
  readonly domain: string;
  /** Repository in the registry: `library/alpine`. */
  readonly path: string;
  readonly tag?: string;
  readonly digest?: Digest;
}

export const DEFAULT_DOMAIN = 'docker.io';
const LEGACY_DOMAIN = 'index.docker.io';
const OFFICIAL_PREFIX = 'library/';
const DEFAULT_TAG = 'latest';
const MAX_PATH_LENGTH = 255;

const DOMAIN_COMPONENT = '(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])';
const DOMAIN = `(?:${DOMAIN_COMPONENT}(?:\\.${DOMAIN_COMPONENT})*|\\[[a-fA-F0-9:]+\\])(?::[0-9]+)?`;
const PATH_COMPONENT = '[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*';
const PATH = `${PATH_COMPONENT}(?:/${PATH_COMPONENT})*`;
const TAG = '[\\w][\\w.-]{0,127}';
const DIGEST = '[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}';

const REFERENCE = new RegExp(`^((?:${DOMAIN}/)?${PATH})(?::(${TAG}))?(?:@(${DIGEST}))?$`);
const NAME = new RegExp(`^(?:(${DOMAIN})/)?(${PATH})$`);
const TAG_ONLY = new RegExp(`^${TAG}$`);
const IDENTIFIER = /^[a-f0-9]{64}$/;
const HEX_LENGTHS: Readonly<Record<string, number>> = { sha256: 64, sha384: 96, sha512: 128 };

const malformed = (message: string): EngineError => invalid(message, { code: 'INVALID_REFERENCE' });

/**
 * Parses what a client wrote and normalises it; neither tag nor digest is added.
 * Throws `invalid` with the texts of the distribution reference library, which clients match on.
 */
export function parseReference(text: string): ImageReference {
  if (IDENTIFIER.test(text))
    throw malformed(`invalid repository name (${text}), cannot specify 64-byte hexadecimal strings`);
  const { domain, remainder } = splitDomain(text);
  const remote = remainder.split(':', 1)[0] ?? '';
  if (remote.toLowerCase() !== remote)
    throw malformed(`invalid reference format: repository name (${remote}) must be lowercase`);
  return parseCanonical(`${domain}/${remainder}`);
}

/**
 * Splits off the domain, which is the part before the first slash if it cannot be a namespace of the default registry.
 */
function splitDomain(text: string): { domain: string; remainder: string } {
  const slash = text.indexOf('/');
  if (slash < 0) return { domain: DEFAULT_DOMAIN, remainder: OFFICIAL_PREFIX + text };
  const first = text.slice(0, slash);
  const isHost = first === 'localhost' || /[.:]/.test(first) || first.toLowerCase() !== first;
  const domain = !isHost || first === LEGACY_DOMAIN ? DEFAULT_DOMAIN : first;
  const remainder = isHost ? text.slice(slash + 1) : text;
  const isOfficial = domain === DEFAULT_DOMAIN && !remainder.includes('/');
  return { domain, remainder: isOfficial ? OFFICIAL_PREFIX + remainder : remainder };
}

function parseCanonical(text: string): ImageReference {
  const match = REFERENCE.exec(text);
  const name = match?.[1] === undefined ? null : NAME.exec(match[1]);
  if (!match || !name?.[1] || !name[2]) {
    throw malformed(
      !match && REFERENCE.test(text.toLowerCase())
        ? 'invalid reference format: repository name must be lowercase'
        : 'invalid reference format',
    );
  }
  if (name[2].length > MAX_PATH_LENGTH)
    throw malformed(`repository name must not be more than ${MAX_PATH_LENGTH} characters`);
  return {
    domain: name[1],
    path: name[2],
    ...(match[2] === undefined ? {} : { tag: match[2] }),
    ...(match[3] === undefined ? {} : { digest: parseDigest(match[3]) }),
  };
}

/** Checks algorithm and length. Only sha256 exists in this engine; throws `invalid` for anything else. */
export function parseDigest(text: string): Digest {
  const [algorithm = '', hex = ''] = text.split(':', 2);
  const length = ownMember(HEX_LENGTHS, algorithm);
  if (length === undefined || algorithm !== 'sha256') throw malformed('unsupported digest algorithm');
  if (hex.length !== length) throw malformed('invalid checksum digest length');
  if (!/^[a-f0-9]+$/.test(hex)) throw malformed('invalid checksum digest format');
  return `sha256:${hex}`;
}

/** True for `sha256:` and 64 lower-case hex digits. */
export function isDigest(text: unknown): text is Digest {
  return typeof text === 'string' && text.startsWith('sha256:') && IDENTIFIER.test(text.slice(7));
}

/** True for a word that may be a tag. */
export function isTag(text: string): boolean {
  return TAG_ONLY.test(text);
}

/** Adds `latest` when neither tag nor digest was written. */
export function withDefaultTag(reference: ImageReference): ImageReference {
  return reference.tag === undefined && reference.digest === undefined ? { ...reference, tag: DEFAULT_TAG } : reference;
}

/**
 * Replaces tag or digest by what the `tag` parameter of a request says: it may be either.
 * Throws `invalid` when it is neither.
 */
export function withTagOrDigest(reference: ImageReference, tagOrDigest: string): ImageReference {
  const { domain, path } = reference;
  if (tagOrDigest.includes(':')) return { domain, path, digest: parseDigest(tagOrDigest) };
  if (!isTag(tagOrDigest)) throw malformed('invalid tag format');
  return { domain, path, tag: tagOrDigest };
}

/** Returns `docker.io/library/alpine`, the key of a repository. */
export function canonicalName(reference: ImageReference): string {
  return `${reference.domain}/${reference.path}`;
}

/** Returns `docker.io/library/alpine:3`, the key of a tag or digest in the image store. */
export function canonicalString(reference: ImageReference): string {
  return canonicalName(reference) + suffix(reference);
}

/** Returns the name as users write it: `alpine`, `team/app`, `localhost:5000/app`. */
export function familiarName(reference: ImageReference): string {
  const { domain, path } = reference;
  if (domain !== DEFAULT_DOMAIN) return `${domain}/${path}`;
  const official = path.startsWith(OFFICIAL_PREFIX) ? path.slice(OFFICIAL_PREFIX.length) : undefined;
  return official !== undefined && !official.includes('/') ? official : path;
}

/** Returns the familiar name with tag and digest: `alpine:3`, `alpine@sha256:…`. */
export function familiarString(reference: ImageReference): string {
  return familiarName(reference) + suffix(reference);
}

function suffix({ tag, digest }: ImageReference): string {
  return (tag === undefined ? '' : `:${tag}`) + (digest === undefined ? '' : `@${digest}`);
}

/** Returns the name to give an image, familiar and with a tag. @throws EngineError invalid. */
export function newName(repo: string, tag: string): string {
  const written = parseReference(repo);
  if (written.digest !== undefined) throw invalid('cannot import digest reference', { code: 'INVALID_REFERENCE' });
  if (tag !== '' && !isTag(tag)) throw invalid('invalid tag format', { code: 'INVALID_REFERENCE' });
  const named = withDefaultTag(tag === '' ? written : { ...written, tag });
  if (familiarString({ domain: named.domain, path: named.path }) === 'sha256') {
    throw invalid('refusing to create an ambiguous tag using digest algorithm as name', { code: 'INVALID_REFERENCE' });
  }
  return familiarString(named);
}
