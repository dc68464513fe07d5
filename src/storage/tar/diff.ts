/** Makes the tar of an image layer from the writable layer of a container. Synchronous, for worker threads. */
import { statfsSync } from 'node:fs';
import type { IdMaps } from '../../ports/id-maps.js';
import { toBytePath } from '../byte-path.js';
import { isOpaque, isWhiteout } from '../layers/marks.js';
import { walkTree, type WalkedEntry } from '../walk-tree.js';
import { commonFields, EntryWriter, type TarWatcher } from './entry-writer.js';
import { encodeHeader, END_OF_ARCHIVE } from './header-writer.js';

const CHUNK_BYTES = 1024 * 1024;
const WHITEOUT = '.wh.';

/** Is told of each entry before its bytes come. */
export interface DiffWatcher extends TarWatcher {
  /** Nobody changes the tree meanwhile. */
  readonly isStill?: boolean;
  entry(entry: WalkedEntry): void;
}

/**
 * Returns the bytes of the tar, which are always the same for a given tree: names in the order of their bytes, times
 * cut to seconds as in the Docker engine. A chunk is valid until the next one is asked for. Sockets are left out, and
 * so are files whose own names read as whiteouts. Owners are mapped by `idMaps`. A file that changes during the walk is
 * in the tar as it was at some moment.
 * @throws EngineError code ENOSPC for sparse files that would not fit on the disk: as they could be read for days, they
 * are refused at once.
 */
export function* diffTar(upperDir: string, idMaps?: IdMaps, watcher?: DiffWatcher): Generator<Buffer> {
  const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  const writer = new EntryWriter(() => buffer, idMaps, watcher, watcher?.isStill);
  const { bavail, bsize } = statfsSync(upperDir);
  writer.holeBytesLeft = bavail * bsize;
  for (const entry of walkTree(toBytePath(upperDir))) yield* diffEntry(writer, entry, idMaps, watcher);
  yield END_OF_ARCHIVE;
}

/** Returns the bytes of one file or directory of a difference. */
export function* diffEntry(
  writer: EntryWriter,
  entry: WalkedEntry,
  idMaps: IdMaps | undefined,
  watcher: DiffWatcher | undefined,
): Generator<Buffer> {
  const { path, stat } = entry;
  watcher?.entry(entry);
  const base = path.slice(path.lastIndexOf('/') + 1);
  if (base.startsWith(WHITEOUT)) return;
  if (isWhiteout(stat)) {
    const name = path.slice(0, path.length - base.length) + WHITEOUT + base;
    yield encodeHeader({ ...commonFields(stat, idMaps), type: '0', name, mode: 0o600 });
    return;
  }
  yield* writer.write(entry, path);
  if (stat.isDirectory() && isOpaque(entry.at))
    yield encodeHeader({ ...commonFields(stat, idMaps), type: '0', name: `${path}/.wh..wh..opq` });
}
