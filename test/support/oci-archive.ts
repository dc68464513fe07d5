/** Reads archives in the layout of OCI. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly platform?: object;
}
export interface Index {
  readonly mediaType: string;
  readonly manifests: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>>;
}
export interface Manifest {
  readonly mediaType: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface OciFiles {
  readonly names: readonly string[];
  json(name: string): unknown;
  bytes(digest: string): Buffer | undefined;
  /** Returns a document, whose size and digest are those of the descriptor. */
  blob(descriptor: Descriptor): unknown;
}

/** Unpacks an archive beside itself; each blob has the digest that it is named by. */
export function ociFiles(archive: string): OciFiles {
  const at = `${archive}.d`;
  mkdirSync(at);
  execFileSync('tar', ['-C', at, '-xf', archive]);
  const files = readdirSync(at, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const found = new Map<string, Buffer>();
  for (const { parentPath, name } of files) {
    const path = join(parentPath, name);
    const bytes = readFileSync(path);
    if (path.includes('/sha256/')) assert.equal(createHash('sha256').update(bytes).digest('hex'), name);
    found.set(path.slice(at.length + 1), bytes);
  }
  const json = (name: string): unknown => JSON.parse(String(found.get(name)));
  return {
    names: [...found.keys()].sort(),
    json,
    bytes: (digest) => found.get(`blobs/${digest.replace(':', '/')}`),
    blob: ({ digest, size }: Descriptor): unknown => {
      const name = `blobs/${digest.replace(':', '/')}`;
      assert.equal(found.get(name)?.length, size);
      return json(name);
    },
  };
}
