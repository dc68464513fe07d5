/** Statements that leave the engine beside the files that they are about, where there is no image to keep them. */
import { createReadStream } from 'node:fs';
import { chmod, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { encodeHeader } from '../../storage/tar/header-writer.js';
import { invalid } from '../../errors/engine-error.js';
import type { WorkerPool } from '../../workers/pool.js';
import { type Attestation, statementParts } from './attestation.js';

export interface StatementDeps {
  readonly pool: WorkerPool;
  readonly tmpDir: string;
}

export interface StatementOrder {
  /** The files, in a directory that nobody changes meanwhile. */
  readonly root: string;
  readonly attestations: readonly Attestation[];
  /** Returns the name of the file of a statement. */
  readonly nameOf: (attestation: Attestation) => string;
}

const MODE = 0o600;
const BLOCK_BYTES = 512;
const NO_SUBJECTS = '"subject": []';

export class FileStatements {
  private constructor(
    /** It has nothing but the statements. */
    readonly directory: string,
  ) {}

  static async write(
    { pool, tmpDir }: StatementDeps,
    { root, attestations, nameOf }: StatementOrder,
    signal: AbortSignal,
  ): Promise<FileStatements> {
    const names = new Set<string>();
    const statements = new FileStatements(await mkdtemp(join(tmpDir, 'build-statements-')));
    try {
      // Clients that get it as a directory give its mode to theirs.
      await chmod(statements.directory, (await stat(root)).mode & 0o7777);
      for (const attestation of attestations) {
        const name = nameOf(attestation);
        if (names.has(name)) throw invalid(`duplicate attestation path name ${name}`);
        names.add(name);
        const [text, ...rest] = statementParts(attestation, []);
        const at = text.indexOf(NO_SUBJECTS) + NO_SUBJECTS.length - 1;
        const tail = [text.slice(at), ...rest];
        const path = join(statements.directory, name);
        await pool.run('attest-files', { root, head: text.slice(0, at), tail, path }, { signal });
      }
      return statements;
    } catch (error) {
      await statements.close();
      throw error;
    }
  }

  /**
   * Returns the beginning of an archive that has the statements, and goes on with other files.
   * @param mtime in seconds since 1970; undefined: that of each statement.
   */
  async *tar(below: string, mtime?: number): AsyncGenerator<Uint8Array> {
    for (const name of (await readdir(this.directory)).sort()) {
      const path = join(this.directory, name);
      const { size, mtimeMs } = await stat(path);
      const mtimeSeconds = mtime ?? Math.floor(mtimeMs / 1000);
      yield encodeHeader({ type: '0', name: below + name, mode: MODE, uid: 0, gid: 0, sizeBytes: size, mtimeSeconds });
      yield* createReadStream(path) as AsyncIterable<Buffer>;
      yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
    }
  }

  async close(): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}
