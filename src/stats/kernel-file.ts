/** Reads files that the kernel makes up when they are read, in a thread of their own. */
import { readFileSync } from 'node:fs';

/**
 * Returns the text; undefined when there is no such file, or the process or group of it has just ended. Eighteen files
 * tell of a container. Read asynchronously, each would take five turns through the thread pool of the process, which
 * cost ten times as much as the reading itself.
 */
export function readKernelFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
