/**
 * Hard links of a layer to files that it does not have: the layers below have them, so the links are made when these
 * are known. Until then nothing is at their paths, and the directories that the paths are in may be replaced.
 */
export class DanglingLinks {
  readonly #targets = new Map<string, string>();
  /** Their paths, by the directory that they are in. */
  readonly #byDirectory = new Map<string, Set<string>>();

  has(path: string): boolean {
    return this.#targets.has(path);
  }

  add(path: string, target: string): void {
    this.#targets.set(path, target);
    const directory = parentOf(path);
    const paths = this.#byDirectory.get(directory) ?? new Set();
    this.#byDirectory.set(directory, paths.add(path));
  }

  /** Something else has the path now. */
  remove(path: string): void {
    if (this.#targets.size > 0 && this.#targets.delete(path)) this.#byDirectory.get(parentOf(path))?.delete(path);
  }

  /** The directory is gone, and what is in it, whatever takes its place: it may be a link out of the layer. */
  removeDirectory(directory: string): void {
    for (const path of this.#byDirectory.get(directory) ?? []) this.#targets.delete(path);
    this.#byDirectory.delete(directory);
  }

  /** Returns them in the order in which they came. */
  list(): { path: string; target: string }[] {
    return [...this.#targets].map(([path, target]) => ({ path, target }));
  }
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0));
}
