/** Finds programs as the shell does. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Tells whether a program can be started by its name alone. */
export function isOnPath(program: string): boolean {
  return findOnPath(program) !== undefined;
}

/** Returns the file that is started for the name of a program. */
export function findOnPath(program: string): string | undefined {
  const dirs = (process.env['PATH'] ?? '').split(delimiter).filter((dir) => dir !== '');
  return dirs.map((dir) => join(dir, program)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
