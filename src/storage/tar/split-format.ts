/**
 * The tar-split file: what is needed beside the files of a layer to rebuild the exact tar. After the magic come blocks
 * (two 32 bit lengths, plain and deflated, then the deflated bytes); a block holds whole records:
 *
 *   RAW   u32 length, bytes        bytes of the tar: headers, padding, what became no file
 *   FILE  u16 length, path, u48 n  n bytes of the tar are the content of that file of the difference
 *   END   u48 n                    the tar had n bytes
 *
 * A file whose name was later taken by another entry of the same tar is kept as `<tar-split>.displaced/<number>`;
 * `index.json` there lists the numbers by path, in the order of the FILE records.
 */
export const SPLIT_MAGIC = Buffer.from('tarsplt1', 'latin1');

export const SPLIT_RAW = 0;
export const SPLIT_FILE = 1;
export const SPLIT_END = 2;

export function displacedDir(tarSplitPath: string): string {
  return `${tarSplitPath}.displaced`;
}
