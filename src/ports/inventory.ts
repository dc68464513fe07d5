/** Contract of the inventory: what lies below the data root, and who owns it. */

/**
 * Kinds of places. `layer`, `layer-record`, `layer-mark`, `image`, `image-record`, `push-record`, `partial` and
 * `pulled-blob` are images; `writable`, `container` containers; `plugin` managed plugins; `cache-record`,
 * `cache-directory` what builds have left for later ones; `staging`, `temporary` work under way; `trash` is being
 * deleted; `leftover` are temporary files of a write that a crash cut off; `foreign` belongs to a storage driver that
 * the daemon does not use; `directory` is the directory itself without what is in it; `other` is what this daemon did
 * not make.
 */
export type PlaceKind =
  | 'layer'
  | 'layer-record'
  | 'layer-mark'
  | 'writable'
  | 'staging'
  | 'trash'
  | 'image'
  | 'image-record'
  | 'push-record'
  | 'partial'
  | 'pulled-blob'
  | 'container'
  | 'volume'
  | 'plugin'
  | 'cache-record'
  | 'cache-directory'
  | 'temporary'
  | 'engine'
  | 'leftover'
  | 'foreign'
  | 'directory'
  | 'other';

export interface Place {
  /** Below the data root. */
  readonly path: string;
  readonly kind: PlaceKind;
  /** The owner, if it exists: the short ID of a layer, an ID, a name. */
  readonly owner: string;
  /** Bytes on the disk as du(1) counts them: in blocks, a file with several names once, other file systems left out. */
  readonly bytes: number;
  /** Time when something was last added to the directory or removed from it, in ns since the epoch. */
  readonly mtimeNs: bigint;
}
