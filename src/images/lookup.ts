/** Finds the image that a client means: by a name, by an ID, or by the beginning of an ID. */
import type { Digest } from '../ports/storage.js';
import {
  canonicalName,
  canonicalString,
  type ImageReference,
  isDigest,
  parseReference,
  withDefaultTag,
} from './reference.js';
import type { References } from './references.js';

/** Reads a text that can only be an ID, with or without `sha256:`. */
export function fullId(text: string): Digest | undefined {
  if (isDigest(text)) return text;
  return /^[a-f0-9]{64}$/.test(text) ? `sha256:${text}` : undefined;
}

export class ImageLookup {
  readonly #references: References;
  readonly #images: ReadonlyMap<Digest, unknown>;

  constructor(references: References, images: ReadonlyMap<Digest, unknown>) {
    this.#references = references;
    this.#images = images;
  }

  /** A name first, then an ID or its unique prefix. Throws `invalid` for a malformed reference. */
  find(reference: string): Digest | undefined {
    const full = fullId(reference);
    if (full !== undefined) return this.#images.has(full) ? full : undefined;
    return this.#named(parseReference(reference)) ?? this.#byPrefix(reference);
  }

  /** True when the text is no name of an image, so that only an ID can have found one. */
  isId(reference: string): boolean {
    return fullId(reference) !== undefined || this.#named(parseReference(reference)) === undefined;
  }

  #named(reference: ImageReference): Digest | undefined {
    const { digest } = reference;
    // A digest says more than the tag beside it.
    if (digest === undefined) return this.#references.get(canonicalString(withDefaultTag(reference)));
    const name = canonicalName(reference);
    const direct = this.#references.get(`${name}@${digest}`);
    if (direct !== undefined) return direct;
    const isOurs = [...this.#references.of(digest)].some(
      (key) => key.startsWith(`${name}:`) || key.startsWith(`${name}@`),
    );
    return isOurs ? digest : undefined;
  }

  #byPrefix(text: string): Digest | undefined {
    const prefix = text.startsWith('sha256:') ? text : `sha256:${text}`;
    if (!/^sha256:[a-f0-9]+$/.test(prefix)) return undefined;
    let found: Digest | undefined;
    for (const id of this.#images.keys()) {
      if (!id.startsWith(prefix)) continue;
      if (found !== undefined) return undefined;
      found = id;
    }
    return found;
  }
}
