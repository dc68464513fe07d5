/** Finds the image that a client means: by a name, by an ID, or by the beginning of an ID. */
import type { Digest } from '../ports/storage.js';
import type { ImageEntries } from './entries.js';
import {
  canonicalName,
  canonicalString,
  type ImageReference,
  isDigest,
  parseReference,
  withDefaultTag,
} from './reference.js';
import type { References } from './references.js';

/** Returns the ID that a text is, with or without `sha256:`; undefined when it can be something else. */
export function fullId(text: string): Digest | undefined {
  if (isDigest(text)) return text;
  return /^[a-f0-9]{64}$/.test(text) ? `sha256:${text}` : undefined;
}

export class ImageLookup {
  readonly #references: References;
  readonly #images: Pick<ImageEntries, 'has' | 'ids'>;

  constructor(references: References, images: Pick<ImageEntries, 'has' | 'ids'>) {
    this.#references = references;
    this.#images = images;
  }

  /**
   * Finds an image by its full ID, by its name, or by a unique prefix of its ID. Throws `invalid` for a malformed
   * reference.
   */
  find(reference: string): Digest | undefined {
    const full = fullId(reference);
    if (full !== undefined) return this.#images.has(full) ? full : undefined;
    return this.#named(parseReference(reference)) ?? this.#byPrefix(reference);
  }

  /** True when the text names no image, so that an image found by it was found by ID. */
  isId(reference: string): boolean {
    return fullId(reference) !== undefined || this.#named(parseReference(reference)) === undefined;
  }

  #named(reference: ImageReference): Digest | undefined {
    const { digest } = reference;
    // If there is a digest, it decides and the tag is ignored.
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
    for (const id of this.#images.ids()) {
      if (!id.startsWith(prefix)) continue;
      if (found !== undefined) return undefined;
      found = id;
    }
    return found;
  }
}
