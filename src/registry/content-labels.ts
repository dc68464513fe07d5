/** Labels of blobs that the supervisor knows. */
import type { Digest } from '../ports/storage.js';

/** The label with the digest of the tar in a blob, which other clients of the supervisor know too. */
export const DIFF_ID = 'containerd.io/uncompressed';
/** Labels by which a blob refers to others, for the garbage collection of the supervisor. */
export const REFERENCE = 'containerd.io/gc.ref.content';

/** Returns the labels of the manifest of an image. */
export function labelsOf(config: Digest, layers: readonly Digest[]): Record<string, Digest> {
  const references = layers.map((digest, index) => [`${REFERENCE}.l.${index}`, digest] as const);
  return { [`${REFERENCE}.config`]: config, ...Object.fromEntries(references) };
}
