/** Which directories have specifications of CDI devices. */
import { normalize } from 'node:path';
import { withoutTrailing } from '../text/trailing.js';

/**
 * Returns their clean paths, those of higher precedence last. There are none when the feature `cdi` is switched off or
 * the only directory is an empty text: then no container can ask for such devices.
 */
export function cdiDirs(given: readonly string[], { cdi }: Readonly<Record<string, boolean>>): readonly string[] {
  if (cdi === false || (given.length === 1 && given[0] === '')) return [];
  return given.map((dir) => withoutTrailing(normalize(dir), '/') || '/');
}
