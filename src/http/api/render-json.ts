/**
 * Renders JSON text in which bigints are plain numbers, as counters of 64 bits need it. Members that are undefined are
 * left out.
 */
export function renderJson(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map(renderJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${renderJson(member)}`).join(',')}}`;
}
