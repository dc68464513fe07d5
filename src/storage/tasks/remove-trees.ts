/** Worker task: deletes directory trees of any size. */
import { rmSync } from 'node:fs';

/** Deletes the paths and everything below them; symbolic links are not followed. Idempotent. */
export function removeTrees({ paths }: { readonly paths: readonly string[] }): void {
  for (const path of paths) rmSync(path, { recursive: true, force: true });
}
