/** Directories in each other as a program in a container makes them, which no path can name. */
import { mkdirSync, writeFileSync } from 'node:fs';

/** Makes so many directories below one that exists, each with an empty file. */
export function makeDeep(top: string, levels: number, name = 'd'): void {
  const before = process.cwd();
  process.chdir(top);
  try {
    for (let level = 0; level < levels; level++) {
      mkdirSync(name);
      process.chdir(name);
      writeFileSync('file', '');
    }
  } finally {
    process.chdir(before);
  }
}
