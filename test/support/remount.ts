/** Lets a test write where a driver has mounted something read-only. */
import { execFileSync } from 'node:child_process';

export function remountWritable(path: string): void {
  execFileSync('mount', ['-o', 'remount,bind,rw', path], { stdio: 'pipe' });
}
