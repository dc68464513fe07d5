/** Tells what the kernel says of SELinux. */
import { existsSync, readFileSync } from 'node:fs';

/**
 * Tells whether the kernel has a policy: then this process has a context with at least three parts. Other security
 * modules give names without colons.
 */
export function hasSeLinuxPolicy(): boolean {
  if (!existsSync('/sys/fs/selinux/enforce')) return false;
  try {
    return readFileSync('/proc/self/attr/current', 'utf8').split(':').length >= 3;
  } catch {
    return false;
  }
}
