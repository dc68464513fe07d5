/**
 * File names are bytes, and not always valid UTF-8. Inside the storage code a path is a byte string: one character
 * (U+0000 to U+00FF) per byte, which is also what `readdir` gives with the encoding `latin1`. For names in ASCII it is
 * the ordinary string.
 */

// oxlint-disable-next-line no-control-regex -- the range of ASCII
const ASCII = /^[\u0000-\u007f]*$/;

/** Returns the argument for Node's fs functions and for libc. */
export function fsPath(bytePath: string): string | Buffer {
  return ASCII.test(bytePath) ? bytePath : Buffer.from(bytePath, 'latin1');
}

/** Makes a byte string from text, such as a path of the configuration. */
export function toBytePath(text: string): string {
  return ASCII.test(text) ? text : Buffer.from(text, 'utf8').toString('latin1');
}

/** Makes text from a byte string; bytes that are not UTF-8 become U+FFFD. */
export function toText(bytePath: string): string {
  return ASCII.test(bytePath) ? bytePath : Buffer.from(bytePath, 'latin1').toString('utf8');
}
