/** Reads sizes in options of storage drivers and of containers. */
import { statfsSync } from 'node:fs';
import { type EngineError, invalid } from '../../errors/engine-error.js';

const SIZE = /^(\d+(?:\.\d+)?) ?([kmgtp]?)(?:i?b)?$/i;

export const refusedOption = (message: string): EngineError => invalid(message, { code: 'STORAGE_OPTION' });

/** Returns the bytes of a text such as `10G`. @throws EngineError invalid for another text. */
export function bytesOf(text: string): number {
  const match = SIZE.exec(text);
  if (!match) throw refusedOption(`invalid size: '${text}'`);
  return Math.floor(Number(match[1]) * 1024 ** ('kmgtp'.indexOf((match[2] ?? '').toLowerCase() || ' ') + 1));
}

/** As `bytesOf`. @throws EngineError invalid also for more than the file system of `root` has. */
export function parseSize(text: string, root: string): number {
  const bytes = bytesOf(text);
  const { blocks, bsize } = statfsSync(root);
  if (bytes > blocks * bsize)
    throw refusedOption(`size ${text} is larger than the file system of the data root (${blocks * bsize} bytes)`);
  return bytes;
}

/** Returns the last value that a list of `name=value` has for a name. */
export function lastOption(storageOpts: readonly string[], name: string): string | undefined {
  return storageOpts.findLast((entry) => entry.startsWith(`${name}=`))?.slice(name.length + 1);
}
