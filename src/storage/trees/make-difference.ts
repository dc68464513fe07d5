/**
 * Finds out what a whole tree has and lacks, compared with what is below it, for drivers whose containers are trees.
 * Synchronous, for worker threads. Paths are byte strings.
 */
import { closeSync, linkSync, mkdirSync, openSync, readdirSync, truncateSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../byte-path.js';
import { type Attributes, copyInode, copyTimes, readAttributes, setAttributes } from '../copy-attributes.js';
import { makeWhiteout } from '../layers/marks.js';
import { type MergedEntry, MergedView } from '../layers/merged-view.js';
import { statOf } from '../stat-of.js';
import { walkTree, type WalkedEntry } from '../walk-tree.js';
import { isSameContent } from './same-content.js';

/** Attributes in which two entries differ that are not the same one. */
const FACTS = ['mode', 'uid', 'gid', 'mtimeNs', 'rdev'] as const;

/**
 * Fills `difference`, an empty directory, with what makes the merged files of `below` those of `tree`. A container may
 * be changing the tree. Files share their blocks with it where the file system can.
 * @param isShape makes files of the right sizes with nothing in them.
 */
export function makeDifference(tree: string, below: readonly string[], difference: string, isShape = false): void {
  new Comparison(tree, below, difference, isShape).run();
}

interface Directory extends Attributes {
  readonly path: string;
}

class Comparison {
  readonly #view: MergedView;
  /** The first place in the difference of files with several names, by inode. */
  readonly #links = new Map<bigint, string>();
  /**
   * The directories that the walk is in, the root first. They are remembered as the walk saw them, because a path could
   * lead out of the tree by now.
   */
  readonly #entered: Directory[] = [];
  readonly #made = new Map<string, Attributes>();

  constructor(
    private readonly tree: string,
    private readonly below: readonly string[],
    private readonly difference: string,
    private readonly isShape: boolean,
  ) {
    this.#view = new MergedView(below);
  }

  run(): void {
    const root = statOf(this.tree);
    if (!root) return;
    this.#enter('', this.tree, root);
    this.#makeEntered();
    this.#hide('', this.tree, this.below);
    for (const entry of walkTree(this.tree)) ignoringVanished(() => this.#compare(entry));
    for (const [path, attributes] of [...this.#made].toReversed())
      setAttributes(attributes, `${this.difference}/${path}`);
  }

  #compare(entry: WalkedEntry): void {
    const { path, at, stat } = entry;
    while (this.#entered.length > 1 && !path.startsWith(`${this.#entered.at(-1)?.path ?? ''}/`)) this.#entered.pop();
    const lower = this.#view.find(path);
    const isDirectory = stat.isDirectory();
    if (isDirectory) this.#enter(path, at, stat);
    if (!isSame(entry, lower)) {
      this.#makeEntered();
      if (!isDirectory) this.#copy(entry);
    }
    if (isDirectory && lower?.parts) this.#hide(path, at, lower.parts);
  }

  #enter(path: string, at: string, stat: BigIntStats): void {
    this.#entered.push({ path, ...readAttributes(at, stat) });
  }

  #makeEntered(): void {
    for (const { path, ...attributes } of this.#entered) {
      if (this.#made.has(path)) continue;
      if (path !== '') mkdirSync(fsPath(`${this.difference}/${path}`));
      this.#made.set(path, attributes);
    }
  }

  #copy({ path, at, stat }: WalkedEntry): void {
    const to = `${this.difference}/${path}`;
    const first = this.#links.get(stat.ino);
    if (first !== undefined) return linkSync(fsPath(first), fsPath(to));
    if (this.isShape && stat.isFile()) makeHole(to, Number(stat.size));
    else copyInode(at, stat, to);
    if (stat.nlink > 1n) this.#links.set(stat.ino, to);
  }

  /** Makes a whiteout for each entry of the entered directory that is below and not in the tree. */
  #hide(directory: string, at: string, parts: readonly string[]): void {
    for (const name of new Set(parts.flatMap((part) => readdirSync(fsPath(part), 'latin1')))) {
      const path = directory === '' ? name : `${directory}/${name}`;
      if (statOf(`${at}/${name}`) || !this.#view.find(path)) continue;
      this.#makeEntered();
      makeWhiteout(`${this.difference}/${path}`);
      // The time is the same whenever somebody asks.
      const stat = this.#entered.at(-1)?.stat;
      if (stat) copyTimes(stat, `${this.difference}/${path}`);
    }
  }
}

/**
 * A snapshot keeps the numbers and the change times of inodes, and nobody can set a change time: equal ones tell that
 * nothing was done. Where they differ, and all else is equal, the contents decide.
 */
function isSame({ at, stat }: WalkedEntry, lower: MergedEntry | undefined): boolean {
  if (!lower) return false;
  if (stat.ino === lower.stat.ino && stat.ctimeNs === lower.stat.ctimeNs) return true;
  if (!stat.isDirectory() && stat.size !== lower.stat.size) return false;
  return FACTS.every((fact) => stat[fact] === lower.stat[fact]) && isSameContent(at, lower.at, stat);
}

function makeHole(at: string, bytes: number): void {
  closeSync(openSync(fsPath(at), 'wx'));
  truncateSync(fsPath(at), bytes);
}

function ignoringVanished(work: () => void): void {
  try {
    work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
