/**
 * Finds ISA-L, which inflates and deflates in half of zlib's time, where the machine has it (Debian: libisal2). The
 * number in its name is that of its ABI: structures of another one would have their fields elsewhere.
 */
import { NativeLibrary } from './native-library.js';

const SONAME = 'libisal.so.2';

let library: NativeLibrary | undefined;
let isSought = false;

/** Returns the library, which is loaded once for each thread; undefined where there is none. */
export function isal(): NativeLibrary | undefined {
  if (!isSought) library = NativeLibrary.find(SONAME);
  isSought = true;
  return library;
}
