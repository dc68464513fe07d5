/** Unpacks layers as the extractor does, and compares what comes back. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import { assembleTar } from '../../src/storage/tar/assemble.js';
import { type ExtractResult, LayerExtractor } from '../../src/storage/tar/layer-extractor.js';
import { type LayerEntry, tarOf } from './image-builder.js';

export interface UnpackedLayer extends ExtractResult {
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

export interface UnpackOptions {
  /** The tar comes in portions of this length. */
  readonly chunkBytes?: number;
  readonly limitBytes?: number;
}

/** Unpacks layers into a folder, which is removed after the tests of the file. */
export class LayerUnpacking {
  readonly temp = mkdtempSync(join(tmpdir(), 'extractor-'));
  #count = 0;

  constructor() {
    after(() => rmSync(this.temp, { recursive: true }));
  }

  unpack(tar: Buffer, { chunkBytes = 65_536, limitBytes }: UnpackOptions = {}): UnpackedLayer {
    const dir = join(this.temp, String(this.#count++));
    const diffDir = join(dir, 'diff');
    const tarSplitPath = join(dir, 'tar-split');
    mkdirSync(diffDir, { recursive: true });
    const extractor = new LayerExtractor({
      diffDir,
      tarSplitPath,
      ...(limitBytes === undefined ? {} : { limitBytes }),
    });
    for (let at = 0; at < tar.length; at += chunkBytes) extractor.write(tar.subarray(at, at + chunkBytes));
    return { ...extractor.finish(), diffDir, tarSplitPath };
  }

  /** Fails unless the tar is refused as invalid. */
  refuses(entries: readonly LayerEntry[] | Buffer, code?: string): void {
    const tar = Buffer.isBuffer(entries) ? entries : tarOf(entries);
    assert.throws(
      () => this.unpack(tar),
      (error) => isEngineError(error, 'invalid') && (code === undefined || error.code === code),
    );
  }
}

/** Fails unless the tar of a layer comes back byte by byte. */
export function assertComesBack(layer: Pick<UnpackedLayer, 'diffDir' | 'tarSplitPath'>, tar: Buffer): void {
  const hash = createHash('sha256');
  for (const chunk of assembleTar(layer)) hash.update(chunk);
  assert.equal(hash.digest('hex'), createHash('sha256').update(tar).digest('hex'), 'the tar comes back byte by byte');
}

export const contentOf = (layer: UnpackedLayer, path: string): string =>
  readFileSync(join(layer.diffDir, path), 'utf8');

/** Makes a tree with a file of each kind, and with odd names, owners, modes and times. */
export function makeOddTree(source: string): string {
  mkdirSync(source);
  const shell = (script: string): void => void execFileSync('sh', ['-ec', script], { cwd: source });
  shell(`
    mkdir -p plain/${'deep/'.repeat(40)} sticky
    echo hello > plain/file; : > plain/empty; head -c 70000 /dev/urandom > plain/random
    head -c 1024 /dev/zero > plain/blocks
    echo long > plain/${'n'.repeat(180)}; ln -s ${'t/'.repeat(90)}t plain/long-target
    echo utf > 'plain/ümläut'; printf bytes > "$(printf 'plain/\\377\\376')"
    ln plain/file plain/hard; ln -s file plain/soft; ln plain/soft plain/hard-to-soft; ln -s /etc/shadow plain/absolute
    mkfifo plain/fifo; mknod plain/null c 1 3; mknod plain/disk b 259 70000
    chmod 4755 plain/file; chmod 2750 plain; chmod 1777 sticky; chmod 0 plain/empty
    chown 1000:1001 plain/random; chown -h 5:6 plain/soft; chown 65534:65534 sticky
    touch -d '2001-02-03 04:05:06.123456789' plain/file; touch -h -d '1999-01-01 00:00:00.5' plain/soft
    touch -d '1969-12-31 23:59:58.25 UTC' plain/random; touch -d '2020-01-01' plain sticky
  `);
  return source;
}
