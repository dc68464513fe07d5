/** Paths below the root of a tree. */

/** Returns an absolute path without `.`, `..` and double slashes; `..` at the root stays there. */
export function cleanPath(path: string): string {
  const kept: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') kept.pop();
    else if (part !== '' && part !== '.') kept.push(part);
  }
  return `/${kept.join('/')}`;
}

export function joinPath(directory: string, name: string): string {
  return directory === '/' ? `/${name}` : `${directory}/${name}`;
}

export function parentPath(path: string): string {
  return path.slice(0, path.lastIndexOf('/')) || '/';
}

/** Returns those directories above a path that are known, the outermost first. */
export function directoriesAbove(path: string, known: { readonly size: number; has(path: string): boolean }): string[] {
  const found: string[] = [];
  if (known.size === 0) return found;
  for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) {
    const above = path.slice(0, slash);
    if (known.has(above)) found.push(above);
  }
  return found;
}
