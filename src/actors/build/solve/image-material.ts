/** Names the image that a stage began with, for provenance. */
import { packageUrl } from '../../../images/package-url.js';
import { parseReference } from '../../../images/reference.js';
import type { BuildMaterial } from '../../../ports/build.js';
import type { ImageConfigDocument } from '../../../ports/images.js';
import type { Digest } from '../../../ports/storage.js';
import { formatPlatform } from '../../../registry/platform.js';

export interface NamedImage {
  readonly name: string;
  /** The name with the digest that the registry has told. */
  readonly shown: string;
  readonly id: Digest;
  /** Canonical names that it has here. */
  readonly names: readonly string[];
  readonly config: ImageConfigDocument;
}

/** Names an image by a package URL, with the digest that its registry knows it by. */
export function imageMaterial({ name, shown, id, names, config }: NamedImage): BuildMaterial {
  const reference = parseReference(name);
  const { domain, path } = reference;
  const known = parseReference(shown).digest ?? reference.digest;
  const stored = names.map(parseReference).find((one) => one.domain === domain && one.path === path && one.digest);
  const { os, architecture, variant = '' } = config;
  return {
    uri: packageUrl(reference, formatPlatform({ os, architecture, variant })),
    digest: { sha256: (known ?? stored?.digest ?? id).slice('sha256:'.length) },
  };
}
