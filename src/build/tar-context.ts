/** The context of a build that comes as a tar, compressed or not: it is unpacked before the build begins. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, isEngineError } from '../errors/engine-error.js';
import type { ArchiveSource } from '../ports/archives.js';
import type { BuildContext, ContextTree } from '../ports/build.js';
import { ArchiveWorkers } from '../storage/archives.js';
import { readSmallFile } from './files/small-file.js';

/** Dockerfiles and ignore files are at most this long. */
const MAX_FILE_BYTES = 16 << 20;

export class TarContexts {
  /** Owners stay as they are in the tar. */
  readonly #workers = new ArchiveWorkers(undefined);

  constructor(private readonly tmpDir: string) {}

  /**
   * @param plainFile is the name of the only file of a context that is no archive. Absent: that is refused.
   * @throws EngineError invalid for a damaged archive; cancelled when the client leaves.
   */
  async unpack(source: ArchiveSource, plainFile?: string): Promise<UnpackedContext> {
    const place = await mkdtemp(join(this.tmpDir, 'build-context-'));
    try {
      const root = join(place, 'root');
      await mkdir(root, { mode: 0o755 });
      const view = { rootfs: root, mounts: [], tmpfs: [], isRootReadOnly: false };
      const options = { noOverwriteDirNonDir: false, owner: undefined, ...(plainFile !== undefined && { plainFile }) };
      const written = await this.#workers.write(view, '/', options, source);
      const close = (): Promise<void> => rm(place, { recursive: true, force: true });
      return new UnpackedContext(root, close, written === 'file' ? plainFile : undefined);
    } catch (error) {
      await rm(place, { recursive: true, force: true });
      throw asDockerd(error);
    }
  }

  close(): Promise<void> {
    return this.#workers.close();
  }
}

/** dockerd's words for what is no archive, or a part of one, by the codes of errors. */
const WORDS: ReadonlyMap<string, string> = new Map([
  ['TAR_HEADER', 'archive/tar: invalid tar header'],
  ['TAR_TRUNCATED', 'unexpected EOF'],
]);

/** Returns an error in the words that clients know. */
function asDockerd(error: unknown): unknown {
  if (!isEngineError(error, 'invalid') || error.code === undefined) return error;
  const words = WORDS.get(error.code);
  return words === undefined ? error : invalid(words, { code: error.code, cause: error });
}

/** Tells whether an archive is to blame, and not the way to it. */
export function isBadArchive(error: unknown): boolean {
  return isEngineError(error, 'invalid') && error.code?.startsWith('TAR_') === true;
}

export class UnpackedContext implements BuildContext {
  /** @param close removes the files. @param onlyFile is set for a context that is no archive. */
  constructor(
    private readonly root: string,
    readonly close: () => Promise<void>,
    readonly onlyFile?: string,
  ) {}

  readFile(path: string): Promise<Buffer | undefined> {
    return readSmallFile(this.root, path, MAX_FILE_BYTES);
  }

  tree(): Promise<ContextTree> {
    return Promise.resolve({ directory: this.root, release: () => Promise.resolve() });
  }
}
