/** The images of an index in an archive beside the one that was chosen. */
import { isEngineError } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { blobPath, cameAs, Configurations, type Draft, Manifests, type OwnManifest } from './documents.js';
import { type ArchiveFiles, badArchive as bad } from './files.js';

/** An archive may have so many images, because each is written to the disk. */
export const MAX_IMAGES = 10_000;

/** Adds the other images of each index that are in the archive as wholes. */
export function withOthers(files: ArchiveFiles, drafts: readonly Draft[]): Draft[] {
  const [manifests, configs] = [new Manifests(files), new Configurations(files)];
  const known = new Set(drafts.map(({ published }) => published?.own));
  const all = drafts.flatMap((draft) => {
    const { published, parts } = draft;
    const target = published && parts && published.target.digest;
    if (target === undefined || target === published?.own) return [draft];
    const index = manifests.find(target);
    if (index?.kind !== 'index') return [draft];
    const others = index.manifests.flatMap(({ digest, platform }) => {
      if (known.has(digest) || platform?.os === 'unknown') return [];
      known.add(digest);
      const other = otherOf(manifests, configs, digest);
      if (!other?.layers.every((path) => hasLayer(files, path))) return [];
      const came = cameAs({ digest: target, bytes: index.bytes }, index, other.own);
      return { ...other, names: draft.names, ...came };
    });
    return [draft, ...others];
  });
  if (all.length > MAX_IMAGES) throw bad(`the archive has more than ${MAX_IMAGES} images`);
  return all;
}

/** Returns an image of an index; undefined when it is none, or for another system, or not in the archive as a whole. */
function otherOf(
  manifests: Manifests,
  configs: Configurations,
  digest: Digest,
): (Draft & { readonly own: OwnManifest }) | undefined {
  const manifest = manifests.find(digest);
  if (manifest?.kind !== 'image') return undefined;
  try {
    const layers = manifest.layers.map((layer) => blobPath(layer.digest));
    return { ...configs.draft(blobPath(manifest.config.digest), layers), own: { ...manifest, digest } };
  } catch (error) {
    if (isEngineError(error) && error.code !== 'ARCHIVE_TOO_LARGE') return undefined;
    throw error;
  }
}

function hasLayer(files: ArchiveFiles, path: string): boolean {
  try {
    files.layer(path);
    return true;
  } catch (error) {
    if (isEngineError(error) && error.code !== 'ARCHIVE_TOO_LARGE') return false;
    throw error;
  }
}
