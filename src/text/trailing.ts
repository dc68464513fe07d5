/** The text without the characters `char` at its end. An expression such as `/x+$/` tries every place where they stand. */
export function withoutTrailing(text: string, char: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === char) end--;
  return text.slice(0, end);
}
