/** Splits `st_rdev` as glibc's major(3) and minor(3) do. Exact up to 2^53, beyond any device number in use. */
export function deviceNumbers(rdev: number): { major: number; minor: number } {
  const wide = BigInt(rdev);
  return {
    major: Number(((wide >> 8n) & 0xfffn) | ((wide >> 32n) & 0xfffff000n)),
    minor: Number((wide & 0xffn) | ((wide >> 12n) & 0xffffff00n)),
  };
}
