/** Writes the files of a case, as a directory or as a tar. */
import { chmodSync, linkSync, lutimesSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type Header, pack } from 'tar-stream';
import { setXattr } from '../../../src/sys/files/xattr.js';
import { CONTEXT_TIME, type FileEntry, type Files } from './case.js';

interface Entry extends FileEntry {
  readonly path: string;
  readonly kind: 'directory' | 'symlink' | 'link' | 'file';
  readonly content: Buffer;
}

/** Lists the entries with the directories above them, parents first. */
function entriesOf(files: Files): Entry[] {
  const made = new Map<string, Entry>();
  const add = (path: string, file: FileEntry, kind: Entry['kind']): void => {
    const above = dirname(path);
    if (above !== '.' && !made.has(above)) add(above, {}, 'directory');
    const content = file.base64 === undefined ? Buffer.from(file.text ?? '') : Buffer.from(file.base64, 'base64');
    made.set(path, { ...file, path, kind, content });
  };
  for (const [name, written] of Object.entries(files)) {
    const file = typeof written === 'string' ? { text: written } : written;
    const isLink = file.link !== undefined;
    if (name.endsWith('/')) add(name.slice(0, -1), file, 'directory');
    else add(name, file, isLink ? 'symlink' : file.hard === undefined ? 'file' : 'link');
  }
  return [...made.values()];
}

const modeOf = ({ kind, mode }: Entry): number => mode ?? (kind === 'directory' ? 0o755 : 0o644);

/** Makes the directory. */
export function writeFiles(root: string, files: Files): void {
  mkdirSync(root, { recursive: true });
  const entries = entriesOf(files);
  for (const entry of entries) {
    const at = join(root, entry.path);
    if (entry.kind === 'directory') mkdirSync(at, { recursive: true });
    else if (entry.kind === 'symlink') symlinkSync(entry.link ?? '', at);
    else if (entry.kind === 'link') linkSync(join(root, entry.hard ?? ''), at);
    else writeFileSync(at, entry.content);
  }
  for (const entry of entries.toReversed()) {
    const at = join(root, entry.path);
    if (entry.kind !== 'symlink' && entry.kind !== 'link') chmodSync(at, modeOf(entry));
    for (const [name, value] of Object.entries(entry.xattrs ?? {})) setXattr(at, name, Buffer.from(value));
    const time = entry.mtime ?? CONTEXT_TIME;
    if (entry.kind !== 'link') lutimesSync(at, time, time);
  }
  lutimesSync(root, CONTEXT_TIME, CONTEXT_TIME);
}

export async function tarOf(files: Files): Promise<Buffer> {
  const archive = pack();
  for (const entry of entriesOf(files)) {
    const header: Partial<Header> & { readonly name: string } = {
      name: entry.kind === 'directory' ? `${entry.path}/` : entry.path,
      type: entry.kind,
      mode: modeOf(entry),
      uid: entry.uid ?? 0,
      gid: entry.gid ?? 0,
      mtime: new Date((entry.mtime ?? CONTEXT_TIME) * 1000),
      linkname: entry.link ?? entry.hard ?? '',
    };
    if (entry.kind === 'file') archive.entry(header, entry.content);
    else archive.entry(header);
  }
  archive.finalize();
  return buffer(archive);
}
