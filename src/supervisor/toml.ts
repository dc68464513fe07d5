/** Writes values as TOML (toml.io), the format in which shims read their options. */
import { invalid } from '../errors/engine-error.js';

/** @throws EngineError invalid for null, which TOML has no word for. */
export function toToml(table: Readonly<Record<string, unknown>>): string {
  return Object.entries(table)
    .map(([name, value]) => `${quoted(name)} = ${valueOf(value, name)}\n`)
    .join('');
}

function valueOf(value: unknown, name: string): string {
  switch (typeof value) {
    case 'string':
      return quoted(value);
    case 'number':
    case 'boolean':
      return String(value);
    default:
  }
  if (Array.isArray(value)) return `[${value.map((item) => valueOf(item, name)).join(', ')}]`;
  if (typeof value !== 'object' || value === null) throw invalid(`runtime option ${name} cannot be null`);
  return `{${Object.entries(value)
    .map(([member, item]) => ` ${quoted(member)} = ${valueOf(item, name)}`)
    .join(',')} }`;
}

/** A JSON string is a TOML string too, except for one control character that JSON does not escape. */
function quoted(text: string): string {
  return JSON.stringify(text).replaceAll('\u007f', '\\u007f');
}
