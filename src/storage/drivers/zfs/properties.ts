/** Reads properties of datasets. */
import { isEngineError } from '../../../errors/engine-error.js';
import type { ZfsHost } from './host.js';

/** Returns properties of a dataset; undefined when there is none of this name. */
export async function propertiesOf(
  host: ZfsHost,
  name: string,
  properties: readonly string[],
): Promise<Map<string, string> | undefined> {
  try {
    return pairs(await host.zfs('get', '-Hp', '-o', 'property,value', properties.join(','), name));
  } catch (error) {
    if (isEngineError(error) && error.code === 'ZFS_MISSING') return undefined;
    throw error;
  }
}

/** Reads lines of two columns. */
export function pairs(text: string): Map<string, string> {
  const lines = text.split('\n').filter((line) => line !== '');
  return new Map(lines.map((line) => [line.slice(0, line.indexOf('\t')), line.slice(line.indexOf('\t') + 1)]));
}
