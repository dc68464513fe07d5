/** Worker task: deletes a directory tree of any size. */
import { rmSync } from 'node:fs';

/** Deletes `path` and everything below it; symbolic links are not followed. Idempotent. */
export function removeTree({ path }: { readonly path: string }): void {
  rmSync(path, { recursive: true, force: true });
}
