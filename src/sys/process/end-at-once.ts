/** Ends this process without a word to its threads. */
import { libc } from '../ffi/libc.js';

/**
 * Ends the process with this code. `process.exit` takes other threads apart first: one that was just calling the
 * kernel, as those that end TLS do all the time, aborts the process then.
 */
export const endAtOnce = libc.func<[code: number], never>('void _exit(int code)');
