/**
 * Directories of clients that are kept between builds, so that only changed files travel again. A directory belongs to
 * one build at a time: a second build of the same directory at the same moment gets one of its own.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';

/** So many are kept, those that were used last. */
const MAX_KEPT = 32;
const MAX_AGE_MS = 48 * 3_600_000;
const PASSING = 'tmp-';

export interface KeptDirectory {
  readonly path: string;
  /** Gives the directory back. @param isWhole false when its content is of no use for a later build. */
  release(isWhole: boolean): Promise<void>;
}

export class ContextCache {
  readonly #root: string;
  readonly #used = new Set<string>();
  #ready: Promise<void> | undefined;

  constructor(root: string) {
    this.#root = root;
  }

  /** @param key names the directory; undefined: nothing of it is kept. */
  async acquire(key: string | undefined): Promise<KeptDirectory> {
    await (this.#ready ??= this.#prepare());
    const name = key === undefined ? undefined : createHash('sha256').update(key).digest('hex').slice(0, 32);
    if (name === undefined || this.#used.has(name)) return this.#passing();
    this.#used.add(name);
    const path = join(this.#root, name);
    try {
      await mkdir(path, { recursive: true, mode: 0o700 });
      await this.#trim();
    } catch (error) {
      this.#used.delete(name);
      throw error;
    }
    const release = async (isWhole: boolean): Promise<void> => {
      const now = new Date();
      if (isWhole) await utimes(path, now, now).catch(() => undefined);
      else await rm(path, { recursive: true, force: true });
      this.#used.delete(name);
    };
    return { path, release };
  }

  /** Removes what no build uses. Resolves with the number of directories. */
  async prune(): Promise<number> {
    await (this.#ready ??= this.#prepare());
    const names = (await readdir(this.#root)).filter((name) => !this.#used.has(name) && !name.startsWith(PASSING));
    for (const name of names) await rm(join(this.#root, name), { recursive: true, force: true });
    return names.length;
  }

  async #passing(): Promise<KeptDirectory> {
    const path = join(this.#root, `${PASSING}${randomBytes(8).toString('hex')}`);
    await mkdir(path, { mode: 0o700 });
    return { path, release: () => rm(path, { recursive: true, force: true }) };
  }

  /** Removes what a daemon that was killed left. */
  async #prepare(): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#root))
      if (name.startsWith(PASSING)) await rm(join(this.#root, name), { recursive: true, force: true });
  }

  async #trim(): Promise<void> {
    const kept: { name: string; usedMs: number }[] = [];
    for (const name of await readdir(this.#root)) {
      if (name.startsWith(PASSING) || this.#used.has(name)) continue;
      const found = await stat(join(this.#root, name)).catch(() => undefined);
      if (found !== undefined) kept.push({ name, usedMs: found.mtimeMs });
    }
    kept.sort((a, b) => b.usedMs - a.usedMs);
    for (const [index, { name, usedMs }] of kept.entries())
      if (index >= MAX_KEPT || Date.now() - usedMs > MAX_AGE_MS)
        await rm(join(this.#root, name), { recursive: true, force: true });
  }
}
