/** The option `size` of a container, which becomes the quota of its dataset: what is its own beyond its image. */
import { bytesOf, refusedOption } from '../size-option.js';

/**
 * Returns the bytes that a container may add to its image; undefined: any number.
 * @param most asks for the bytes that all containers together can have.
 * @throws EngineError invalid for an unknown option, and for a size that cannot be.
 */
export async function sizeFor(
  options: Readonly<Record<string, string>>,
  most: () => Promise<number>,
): Promise<number | undefined> {
  let bytes: number | undefined;
  for (const [name, value] of Object.entries(options)) {
    if (name.toLowerCase() !== 'size') throw refusedOption(`Unknown option ${name}`);
    bytes = bytesOf(value);
    if (bytes === 0) throw refusedOption('zfs: invalid storage size: 0B');
    const limit = await most();
    if (bytes > limit) throw refusedOption(`size ${value} is larger than what the pool has (${limit} bytes)`);
  }
  return bytes;
}
