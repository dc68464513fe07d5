/** Random image layers, and the tree that unpacking them one after the other gives: the measure for the real thing. */
import {
  chmodSync,
  chownSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { LayerEntry } from './image-builder.js';
import { randomNumbers } from './random-numbers.js';

const NAMES = ['a', 'b', 'c', 'd'];

/**
 * Makes layers, the lowest first, while applying each to the directory `model`, which is created. Symbolic links may
 * lead in a circle if `hasCircles`.
 */
export function randomLayers(seed: number, model: string, hasCircles = true): LayerEntry[][] {
  mkdirSync(model);
  chmodSync(model, 0o755);
  const random = randomNumbers(seed);
  return Array.from({ length: 6 }, () => {
    const layer = new Layer(model, random, hasCircles);
    for (let i = 0; i < 25; i++) layer.addEntry();
    return layer.entries;
  });
}

class Layer {
  readonly entries: LayerEntry[] = [];
  /** Paths that entries of this layer made, with their parents: they may not be hidden or made a second time. */
  readonly #made = new Set<string>();
  /** Paths that whiteouts hide: no second one. */
  readonly #hidden = new Set<string>();

  constructor(
    private readonly model: string,
    private readonly random: (limit: number) => number,
    private readonly hasCircles: boolean,
  ) {}

  addEntry(): void {
    const path = this.#randomPath();
    if (this.#made.has(path) || !this.#parentIsDirectory(path)) return;
    const found = this.#kind(path);
    const isLower = found !== undefined;
    switch (this.random(8)) {
      case 0:
        if (isLower && !this.#hidden.has(path)) this.#whiteout(path);
        return;
      case 1:
        if (found === 'directory') this.#opaque(path);
        return;
      case 2:
      case 3:
        this.#add(
          { path: `${path}/`, type: 'directory', mode: 0o700 | this.random(64), uid: this.random(3) },
          path,
          found === 'directory',
        );
        return;
      case 4:
        this.#add({ path, type: 'symlink', target: this.#linkTarget(path), gid: this.random(3) }, path, false);
        return;
      case 5: {
        const target = this.#randomPath();
        if (!`${target}/`.startsWith(`${path}/`) && this.#isLinkable(target))
          this.#add({ path, type: 'link', target }, path, false);
        return;
      }
      default:
        this.#add(
          {
            path,
            content: `${this.random(1000)}`.repeat(this.random(300)),
            mode: 0o600 | this.random(64),
            uid: this.random(3),
          },
          path,
          false,
        );
    }
  }

  #linkTarget(path: string): string {
    const target = NAMES[this.random(4)] ?? 'a';
    return this.hasCircles || target > path.slice(path.lastIndexOf('/') + 1) ? target : 'nowhere';
  }

  #randomPath(): string {
    return Array.from({ length: 1 + this.random(3) }, () => NAMES[this.random(NAMES.length)] ?? 'a').join('/');
  }

  #kind(path: string): 'directory' | 'file' | 'other' | undefined {
    const stat = lstatSync(join(this.model, path), { throwIfNoEntry: false });
    if (!stat) return undefined;
    return stat.isDirectory() ? 'directory' : stat.isFile() ? 'file' : 'other';
  }

  #parentIsDirectory(path: string): boolean {
    const parent = dirname(path);
    if (parent === '.') return true;
    if (!this.#parentIsDirectory(parent)) return false;
    const kind = this.#kind(parent);
    return kind === 'directory' || kind === undefined;
  }

  /** A file that has no other name in the layers below: overlayfs cannot keep names together across layers. */
  #isLinkable(path: string): boolean {
    if (!this.#parentIsDirectory(path) || this.#kind(path) !== 'file') return false;
    return this.#made.has(path) || lstatSync(join(this.model, path)).nlink === 1;
  }

  #whiteout(path: string): void {
    this.#hidden.add(path);
    this.entries.push({ path: join(dirname(path), `.wh.${path.slice(path.lastIndexOf('/') + 1)}`) });
    rmSync(join(this.model, path), { recursive: true });
    this.#noteMade(dirname(path));
  }

  #opaque(path: string): void {
    this.entries.push({ path: `${path}/.wh..wh..opq` });
    this.#removeLower(path);
    this.#noteMade(path);
  }

  #removeLower(directory: string): void {
    for (const name of readdirSync(join(this.model, directory))) {
      const path = `${directory}/${name}`;
      if (!this.#made.has(path)) rmSync(join(this.model, path), { recursive: true });
      else if (this.#kind(path) === 'directory') this.#removeLower(path);
    }
  }

  #add(entry: LayerEntry, path: string, merges: boolean): void {
    this.entries.push(entry);
    const at = join(this.model, path);
    if (!merges) rmSync(at, { recursive: true, force: true });
    this.#makeParents(path);
    const { uid = 0, gid = 0, mode = 0o644, content = '', target = '', mtime = 1_700_000_000 } = entry;
    if (entry.type === 'directory') {
      mkdirSync(at, { recursive: true });
      chownSync(at, uid, gid);
      chmodSync(at, mode);
    } else if (entry.type === 'symlink') {
      symlinkSync(target, at);
      lchownSync(at, uid, gid);
    } else if (entry.type === 'link') {
      linkSync(join(this.model, target), at);
    } else {
      writeFileSync(at, content);
      chownSync(at, uid, gid);
      chmodSync(at, mode);
    }
    if (entry.type !== 'directory' && entry.type !== 'link') lutimesSync(at, mtime, mtime);
    this.#noteMade(path);
    // The target of a link is in this layer from now on, in the layer store's way of keeping it.
    if (entry.type === 'link') this.#noteMade(target);
  }

  #makeParents(path: string): void {
    const parent = dirname(path);
    if (parent === '.' || this.#kind(parent) === 'directory') return;
    this.#makeParents(parent);
    mkdirSync(join(this.model, parent));
    chmodSync(join(this.model, parent), 0o755);
  }

  #noteMade(path: string): void {
    for (let at = path; at !== '.'; at = dirname(at)) this.#made.add(at);
  }
}
