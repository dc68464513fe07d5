/** Sizes of containers on btrfs: the option `btrfs.min_space` of the daemon and `size` of a container. */
import { lastOption, parseSize, refusedOption } from '../size-option.js';

export const MIN_SPACE_OPTION = 'btrfs.min_space';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];

/** @throws EngineError invalid for a size that the file system of `root` does not have. */
export function leastSize(root: string, storageOpts: readonly string[]): number | undefined {
  const text = lastOption(storageOpts, MIN_SPACE_OPTION);
  return text === undefined ? undefined : parseSize(text, root);
}

/**
 * Returns the bytes that a container may add to its image; undefined: any number.
 * @throws EngineError invalid for an unknown option, and for a size that cannot be or must not be.
 */
export function sizeFor(root: string, options: Readonly<Record<string, string>>, leastBytes = 0): number | undefined {
  let bytes: number | undefined;
  for (const [name, value] of Object.entries(options)) {
    if (name.toLowerCase() !== 'size') throw refusedOption(`Unknown option ${name}`);
    bytes = parseSize(value, root);
    if (bytes === 0) throw refusedOption('btrfs: invalid storage size: 0B');
    if (bytes < leastBytes) throw refusedOption(`btrfs: storage size cannot be less than ${shown(leastBytes)}`);
  }
  return bytes;
}

/** Writes a number of bytes with four digits at most. */
function shown(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), UNITS.length - 1);
  return `${Number((bytes / 1000 ** power).toPrecision(4))}${UNITS.at(power) ?? ''}`;
}
