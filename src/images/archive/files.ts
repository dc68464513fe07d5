/**
 * The files of an archive of images by their paths. Whoever wrote the archive decides how often its documents name one
 * another, so each file is checked once, and the number of look-ups has a limit.
 */
import { createHash } from 'node:crypto';
import { dataLoss, type EngineError, invalid } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { toBytePath, toText } from '../../storage/byte-path.js';
import { cleanName } from '../../storage/tar/entry-name.js';
import type { ArchiveContents, ArchivedLayer } from './contents.js';

/** After so many links in a row they count as a circle, as in the kernel. */
const MAX_LINKS = 40;
/** The number of look-ups has this limit, far above what a thousand images of a hundred layers need. */
const MAX_LOOKUPS = 200_000;

/** Makes the error for an archive that cannot be loaded as it is. */
export function badArchive(message: string, cause?: unknown): EngineError {
  return invalid(message, { code: 'BAD_ARCHIVE', ...(cause === undefined ? {} : { cause }) });
}

export class ArchiveFiles {
  readonly #documents: ReadonlyMap<string, Buffer>;
  readonly #links: ReadonlyMap<string, string>;
  /** If two layers have the same path, the last one counts, as when the archive is unpacked. */
  readonly #layers: ReadonlyMap<string, ArchivedLayer>;
  readonly #digests = new Map<string, Digest>();
  #lookups = 0;

  constructor({ documents, layers, links }: ArchiveContents) {
    this.#documents = documents;
    this.#links = links;
    this.#layers = new Map(layers.map((layer) => [layer.path, layer]));
  }

  /**
   * Returns the document at a path; links are followed. @throws EngineError data-loss when it does not have the digest
   * that is its name, or that of the link.
   */
  document(text: string): Buffer | undefined {
    const path = this.#resolve(text);
    const bytes = this.#documents.get(path);
    // An image may have its ID from such a name.
    if (bytes !== undefined) for (const name of [nameOf(text), path]) checkBlob(name, this.#digestOf(path, bytes));
    return bytes;
  }

  /** Returns the digest of the document at a path. @throws EngineError as `document`. */
  digest(text: string): Digest | undefined {
    const bytes = this.document(text);
    return bytes && this.#digestOf(this.#resolve(text), bytes);
  }

  /**
   * Returns the layer at a path. @throws EngineError invalid when there is none, or a document instead; the error of
   * its unpacking.
   */
  layer(text: string): ArchivedLayer {
    const path = this.#resolve(text);
    const layer = this.#layers.get(path);
    if (!layer) throw badArchive(`the archive has no layer ${JSON.stringify(text)}`);
    if (layer.result.ok) for (const name of [nameOf(text), path]) checkBlob(name, layer.blobDigest);
    return layer;
  }

  /**
   * Follows the links of a path. @throws EngineError invalid for a path that leads out of the archive, and for links in
   * a circle.
   */
  #resolve(text: string): string {
    let path = nameOf(text);
    for (let hops = 0; ; hops++) {
      if (++this.#lookups > MAX_LOOKUPS) {
        throw invalid(`the documents of the archive name more than ${MAX_LOOKUPS} files`, {
          code: 'ARCHIVE_TOO_LARGE',
        });
      }
      const target = this.#links.get(path);
      if (target === undefined) return path;
      if (hops === MAX_LINKS) throw badArchive(`too many links at ${JSON.stringify(text)} in the archive`);
      path = target;
    }
  }

  #digestOf(path: string, bytes: Buffer): Digest {
    let digest = this.#digests.get(path);
    if (digest === undefined) {
      digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
      this.#digests.set(path, digest);
    }
    return digest;
  }
}

function nameOf(text: string): string {
  return cleanName(toBytePath(text));
}

/** Checks a file in `blobs`, whose name must be its digest. */
function checkBlob(path: string, digest: Digest): void {
  const named = /^blobs\/sha256\/([^/]*)$/.exec(path)?.[1];
  if (named !== undefined && `sha256:${named}` !== digest)
    throw dataLoss(`blob sha256:${toText(named)} in the archive has the digest ${digest}`, { code: 'DIGEST_MISMATCH' });
}
