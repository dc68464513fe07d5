/** JSON as Go's encoder writes it, for documents that clients compare or hash. */

const MARKUP = /[<>&\u2028\u2029]/g;

/** Returns the document in lines, with markup escaped. */
export function goJson(value: unknown, indent = 2): string {
  return JSON.stringify(value, undefined, indent).replace(
    MARKUP,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
