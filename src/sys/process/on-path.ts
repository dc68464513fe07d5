/** Finds programs as the shell does. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Tells whether a program can be started by its name alone. */
export function isOnPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((dir) => {
    try {
      accessSync(join(dir, program), constants.X_OK);
      return dir !== '';
    } catch {
      return false;
    }
  });
}
