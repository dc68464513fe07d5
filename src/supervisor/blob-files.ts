/**
 * Puts files among the blobs of our own containerd. It takes a blob whose file is there already without being sent it:
 * that is how its namespaces share content (`content_sharing_policy`, which is so by default since 1.0), and the names
 * of the files are those of an OCI image layout. To send half a gigabyte and have it hashed once more would cost more
 * than to fetch it.
 */
import { constants } from 'node:fs';
import { link, mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Digest } from '../ports/storage.js';
import { syncDirectory, temporaryPath } from '../sys/files/durable-file.js';

/** containerd gives its blobs this mode. */
const BLOB_MODE = 0o444;

export class BlobFiles {
  readonly #directory: string;
  /** A large file that waits for the disk holds one thread of the pool; so only one does at a time. */
  #last: Promise<void> = Promise.resolve();

  /** @param root directory of containerd (`root` in its configuration). */
  constructor(root: string) {
    this.#directory = join(root, 'io.containerd.content.v1.content', 'blobs', 'sha256');
  }

  /**
   * Puts a file there, which stays where it is, too. It has the digest, and nobody writes to it any more. When this
   * fails, as on another file system, nothing is there, and the bytes can be sent. The same happens when containerd
   * collects what no namespace has before it is told of the blob.
   */
  put(digest: Digest, path: string): Promise<void> {
    const done = this.#last.then(() => this.#put(digest, path)).catch(() => undefined);
    this.#last = done;
    return done;
  }

  async #put(digest: Digest, path: string): Promise<void> {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      await file.chmod(BLOB_MODE);
      // A file that is there under its digest is taken for whole, also after a power cut.
      await file.sync();
    } finally {
      await file.close();
    }
    await mkdir(this.#directory, { recursive: true });
    const temp = temporaryPath(path);
    try {
      await link(path, temp);
      // In the place of what a namespace has by this digest there are the same bytes afterwards.
      await rename(temp, join(this.#directory, digest.slice('sha256:'.length)));
      await syncDirectory(this.#directory);
    } finally {
      // It is still there when both are the same file already.
      await rm(temp, { force: true });
    }
  }
}
