/** Names images by package URLs, as documents about the origin of software do. */
import { familiarName, type ImageReference } from './reference.js';

/** @param platform such as `linux/arm64`. Returns, say, `pkg:docker/alpine@3?platform=linux%2Farm64`. */
export function packageUrl({ domain, path, tag, digest }: ImageReference, platform: string): string {
  // The colon before a port stays as it is, as in the names that BuildKit writes.
  const name = familiarName({ domain, path })
    .split('/')
    .map((part) => encodeURIComponent(part).replaceAll('%3A', ':'))
    .join('/');
  const version = tag ?? (digest === undefined ? 'latest' : '');
  return `pkg:docker/${name}${version === '' ? '' : `@${version}`}?platform=${encodeURIComponent(platform)}`;
}
