/**
 * Changes of a container as bytes that threads share: a container may have changed millions of files, and an object for
 * each of them would hold the main thread up. Each is the digit of its kind, its path, and a NUL.
 */
import type { Change } from '../ports/storage.js';

export type PackedChanges = SharedArrayBuffer;

const NUL = 0;
/** No more is ever wanted of one container, nor by its client. */
const MAX_BYTES = 256 << 20;

/** Packs changes in their order; undefined when they are too long. */
export function packChanges(changes: readonly Change[]): PackedChanges | undefined {
  let size = 0;
  for (const { path } of changes) size += Buffer.byteLength(path) + 2;
  if (size > MAX_BYTES) return undefined;
  const shared = new SharedArrayBuffer(size);
  const bytes = Buffer.from(shared);
  let at = 0;
  for (const { kind, path } of changes) at += bytes.write(`${kind}${path}\0`, at);
  return shared;
}

/** Returns the changes one by one. */
export function* unpackChanges(packed: PackedChanges): Generator<Change> {
  const bytes = Buffer.from(packed);
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(NUL, at);
    yield {
      path: bytes.toString('utf8', at + 1, end),
      kind: Number(bytes.toString('latin1', at, at + 1)) as Change['kind'],
    };
    at = end + 1;
  }
}
