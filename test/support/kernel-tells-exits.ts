/** Whether the kernel keeps exit codes for those who have a descriptor of the process: Linux 6.15 and later. */
import { release } from 'node:os';
import { isAtLeast, parseVersion } from '../../src/text/version.js';

export const KERNEL_TELLS_EXITS = isAtLeast(parseVersion(release()), [6, 15]);
