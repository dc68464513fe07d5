/** The context of a build that comes as a tar, compressed or not: it is unpacked before the build begins. */
import { mkdir, mkdtemp, open, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../errors/engine-error.js';
import type { ArchiveSource } from '../ports/archives.js';
import type { BuildContext, ContextTree } from '../ports/build.js';
import { ArchiveWorkers } from '../storage/archives.js';
import { closeFd } from '../sys/files/fd.js';
import { openInRoot } from '../sys/files/open-in-root.js';
import { cleanPath } from './files/paths.js';

/** Dockerfiles and ignore files are at most this long. */
const MAX_FILE_BYTES = 16 << 20;

export class TarContexts {
  /** Owners stay as they are in the tar. */
  readonly #workers = new ArchiveWorkers(undefined);

  constructor(private readonly tmpDir: string) {}

  /** @throws EngineError invalid for a damaged archive; cancelled when the client leaves. */
  async unpack(source: ArchiveSource): Promise<UnpackedContext> {
    const place = await mkdtemp(join(this.tmpDir, 'build-context-'));
    try {
      const root = join(place, 'root');
      await mkdir(root, { mode: 0o755 });
      const view = { rootfs: root, mounts: [], tmpfs: [], isRootReadOnly: false };
      await this.#workers.write(view, '/', { noOverwriteDirNonDir: false, owner: undefined }, source);
      return new UnpackedContext(root, () => rm(place, { recursive: true, force: true }));
    } catch (error) {
      await rm(place, { recursive: true, force: true });
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#workers.close();
  }
}

export class UnpackedContext implements BuildContext {
  /** @param close removes the files. */
  constructor(
    private readonly root: string,
    readonly close: () => Promise<void>,
  ) {}

  async readFile(path: string): Promise<Buffer | undefined> {
    const directory = await open(this.root, 'r');
    try {
      const fd = openInRoot(directory.fd, cleanPath(path));
      try {
        return await readSmall(`/proc/self/fd/${fd}`, path);
      } finally {
        closeFd(fd);
      }
    } catch (error) {
      const { code } = error as { readonly code?: string };
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined;
      throw error;
    } finally {
      await directory.close();
    }
  }

  tree(): Promise<ContextTree> {
    return Promise.resolve({ directory: this.root, release: () => Promise.resolve() });
  }
}

async function readSmall(at: string, shown: string): Promise<Buffer> {
  // To open a FIFO would take a thread for ever.
  const found = await stat(at);
  if (!found.isFile()) throw invalid(`${shown} is not a file`);
  if (found.size > MAX_FILE_BYTES) throw invalid(`${shown} is too large`);
  const file = await open(at, 'r');
  try {
    return await file.readFile();
  } finally {
    await file.close();
  }
}
