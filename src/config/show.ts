/** Values of options as messages and answers show them. */
import type { Option } from './options.js';

/** Renders a value: `true`, `info`, `[a b]`, `map[k:v]`. Credentials of proxies are masked. */
export function showValue(option: Pick<Option<unknown>, 'credentials'>, value: unknown): string {
  if (typeof value === 'string') return option.credentials ? maskCredentials(value) : value;
  if (Array.isArray(value)) return `[${value.map((item) => showValue(option, item)).join(' ')}]`;
  if (typeof value === 'object' && value !== null) {
    return `map[${Object.entries(value)
      .map(([name, item]) => `${name}:${showValue(option, item)}`)
      .join(' ')}]`;
  }
  return String(value);
}

/** Masks the user information of a proxy URL. */
export function maskCredentials(url: string): string {
  return url.replace(/^([a-z0-9+.-]+:\/\/)?[^@/]*@/i, '$1xxxxx:xxxxx@');
}
