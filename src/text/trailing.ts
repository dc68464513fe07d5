/**
 * Returns the text without the characters `char` at its end. An expression such as `/x+$/` would be slow, because it
 * tries every run of them in the text.
 */
export function withoutTrailing(text: string, char: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === char) end--;
  return text.slice(0, end);
}
