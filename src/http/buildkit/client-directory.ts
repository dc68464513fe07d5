/** A directory of a client's, whose files come when a build needs them. */
import { cleanPath } from '../../build/files/paths.js';
import { readSmallFile, readSmallFiles, type SmallFiles } from '../../build/files/small-file.js';
import { withinRoom } from '../../build/sources/disk-room.js';
import { invalid, isEngineError } from '../../errors/engine-error.js';
import type { CountBytes } from '../../ports/build.js';
import type { ContextCache, ReceivingDirectory } from './context-cache.js';
import type { CallMetadata, MessageCall } from './grpc-client.js';
import { receiveSmallFiles } from './receive-small-files.js';
import { receiveTree } from './receive-tree.js';
import type { Session, Sessions } from './session.js';

const DIFF_COPY = '/moby.filesync.v1.FileSync/DiffCopy';
/** Dockerfiles and ignore files are small. */
const MAX_SMALL_BYTES = 1024 * 1024;
const PRINTABLE = /^[ -~]*$/;

export interface Selection {
  /** Patterns of files that are left out. */
  readonly exclude: readonly string[];
  /** Only these paths, and what they point to; empty: everything. */
  readonly follow: readonly string[];
}

export interface DirectoryParts {
  readonly sessions: Sessions;
  readonly contexts: ContextCache;
  /** The session that offers the directory, and its name there. */
  readonly sessionId: string;
  readonly name: string;
  readonly signal: AbortSignal;
}

export class ClientDirectory {
  readonly #parts: DirectoryParts;

  constructor(parts: DirectoryParts) {
    this.#parts = parts;
  }

  /**
   * Resolves with small files by their paths; those that are missing are left out. They come into memory; only what
   * links are to lead to is written into a directory first.
   */
  async smallFiles(paths: readonly string[], bytes: CountBytes = () => undefined): Promise<SmallFiles> {
    const session = await this.#session();
    const clean = new Map(paths.map((path) => [path, cleanPath(path).slice(1)]));
    const wanted = new Set(clean.values());
    const files = wanted.has('') ? undefined : await this.#inMemory(session, wanted, paths, bytes);
    if (files === undefined) return this.#throughDirectory(session, paths, bytes);
    return new Map(
      paths.flatMap((path) => {
        const file = files.get(clean.get(path) ?? '');
        return file === undefined ? [] : [[path, file] as const];
      }),
    );
  }

  #inMemory(
    session: Session,
    paths: ReadonlySet<string>,
    follow: readonly string[],
    bytes: CountBytes,
  ): Promise<ReadonlyMap<string, Buffer> | undefined> {
    return explained(async () => {
      const call = this.#open(session, { exclude: [], follow }, this.#parts.signal);
      return receiveSmallFiles({ call, paths, maxBytes: MAX_SMALL_BYTES, bytes });
    });
  }

  async #throughDirectory(session: Session, paths: readonly string[], bytes: CountBytes): Promise<SmallFiles> {
    const directory = await this.#parts.contexts.passing();
    try {
      await this.#receive(session, directory, { exclude: [], follow: paths }, bytes);
      return await readSmallFiles(paths, (path) => readSmallFile(directory.path, path, MAX_SMALL_BYTES));
    } finally {
      await directory.release();
    }
  }

  /** Brings files here, as they are kept from earlier builds or as they come. The caller releases the directory. */
  async tree(selection: Selection, bytes: CountBytes): Promise<ReceivingDirectory> {
    const session = await this.#session();
    const { contexts, name } = this.#parts;
    const { sharedKey } = session;
    const directory = await (sharedKey === '' ? contexts.passing() : contexts.keeping(`${name}\0${sharedKey}`, name));
    try {
      const sizeBytes = await this.#receive(session, directory, selection, bytes);
      return { ...directory, release: () => directory.release(sizeBytes) };
    } catch (error) {
      // Files that have come so far shorten the next transfer: each one that is complete has its time.
      await directory.release();
      throw error;
    }
  }

  async #session(): Promise<Session> {
    const { sessions, sessionId, signal } = this.#parts;
    return sessions.wait(sessionId, signal);
  }

  async #receive(
    session: Session,
    directory: ReceivingDirectory,
    selection: Selection,
    bytes: CountBytes,
  ): Promise<number> {
    const { signal } = this.#parts;
    const { writeFiles, noteDigests } = this.#parts.contexts.work;
    const { path: root, digests: path } = directory;
    const keeping = path !== undefined && {
      noteDigests: (records: readonly Uint8Array[]) => noteDigests({ path, root, records }),
    };
    // A client may send more than it has described, and without end.
    return explained(() =>
      withinRoom(directory.path, signal, async (abort) => {
        const call = this.#open(session, selection, abort);
        return receiveTree({ root, call, progress: { bytes }, writeFiles, ...keeping });
      }),
    );
  }

  #open(session: Session, { exclude, follow }: Selection, signal: AbortSignal): MessageCall {
    const metadata = {
      ...values('dir-name', [this.#parts.name]),
      ...values('exclude-patterns', exclude),
      ...values('followpaths', follow),
    };
    return session.client.open(DIFF_COPY, { metadata, signal });
  }
}

/** Runs a transfer, and names what a client lacks that has no service for it. */
async function explained<T>(transfer: () => Promise<T>): Promise<T> {
  try {
    return await transfer();
  } catch (error) {
    if (isEngineError(error, 'not-implemented')) throw invalid('no local sources enabled', { cause: error });
    throw error;
  }
}

/** Each value is a line of its own; all of them are escaped when one has characters that a header cannot have. */
function values(name: string, list: readonly string[]): CallMetadata {
  if (list.length === 0) return {};
  if (list.every((value) => PRINTABLE.test(value))) return { [name]: list };
  const escaped = list.map((value) => encodeURIComponent(value));
  return { [name]: escaped, [`${name}-encoded`]: '1' };
}
