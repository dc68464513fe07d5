/** Names of images as FROM and `--from` have them: full with registry and tag, or familiar such as `alpine`. */
import { DockerfileError } from './dockerfile-error.js';

const IDENTIFIER = /^[a-f0-9]{64}$/;
const HOST = /^(?:[a-zA-Z0-9][a-zA-Z0-9.-]*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$/;
const COMPONENT = /^[a-z0-9][a-z0-9._-]*$/;
/** Between letters and digits stands one dot, one or two underscores, or any number of dashes. */
const BAD_SEPARATOR = /[._]-|-[._]|\.[._]|_\.|___|[._-]$/;
const TAG = /^\w[\w.-]{0,127}$/;
const DIGEST = /^[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,}$/;
const MAX_LENGTH = 255;

/** Returns the full name, with the tag `latest` where there is neither tag nor digest. @throws DockerfileError */
export function normalizeReference(text: string): string {
  if (IDENTIFIER.test(text))
    throw new DockerfileError(`invalid repository name (${text}), cannot specify 64-byte hexadecimal strings`);
  const [domain, remainder] = splitDomain(text);
  const colon = remainder.indexOf(':');
  const remote = colon < 0 ? remainder : remainder.slice(0, colon);
  if (remote !== remote.toLowerCase())
    throw new DockerfileError(`invalid reference format: repository name (${remote}) must be lowercase`);
  const at = remainder.indexOf('@');
  const digest = at < 0 ? undefined : remainder.slice(at + 1);
  const named = at < 0 ? remainder : remainder.slice(0, at);
  const sign = named.indexOf(':');
  const path = sign < 0 ? named : named.slice(0, sign);
  const tag = sign < 0 ? undefined : named.slice(sign + 1);
  const isValid =
    HOST.test(domain) &&
    path.split('/').every((part) => COMPONENT.test(part) && !BAD_SEPARATOR.test(part)) &&
    (tag === undefined || TAG.test(tag)) &&
    (digest === undefined || DIGEST.test(digest));
  if (!isValid) throw new DockerfileError('invalid reference format');
  if (path.length > MAX_LENGTH)
    throw new DockerfileError(`repository name must not be more than ${MAX_LENGTH} characters`);
  const suffix = (tag === undefined ? '' : `:${tag}`) + (digest === undefined ? '' : `@${digest}`);
  return `${domain}/${path}${suffix || ':latest'}`;
}

function splitDomain(text: string): readonly [domain: string, remainder: string] {
  const slash = text.indexOf('/');
  if (slash < 0) return ['docker.io', `library/${text}`];
  const first = text.slice(0, slash);
  const rest = text.slice(slash + 1);
  if (first === 'index.docker.io' || first === 'docker.io')
    return ['docker.io', rest.includes('/') ? rest : `library/${rest}`];
  const isDomain = first === 'localhost' || /[.:]/.test(first) || first !== first.toLowerCase();
  return isDomain ? [first, rest] : ['docker.io', text];
}

/** The short form of a full name, by which contexts are named too. */
export function familiarReference(full: string): string {
  const short = full.startsWith('docker.io/library/')
    ? full.slice('docker.io/library/'.length)
    : full.startsWith('docker.io/')
      ? full.slice('docker.io/'.length)
      : full;
  return short;
}
