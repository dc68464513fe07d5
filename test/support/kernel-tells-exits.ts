/** Whether the kernel keeps exit codes for those who have a descriptor of the process: Linux 6.15 and later. */
import { release } from 'node:os';

const [major = 0, minor = 0] = release().split('.').map(Number.parseFloat);

export const KERNEL_TELLS_EXITS = major > 6 || (major === 6 && minor >= 15);
