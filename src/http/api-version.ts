/** Versions of the Engine API as paths name them. */

export class ApiVersion {
  /** Text as the client wrote it, without the `v`. */
  readonly text: string;
  readonly #components: readonly number[];

  constructor(text: string) {
    this.text = text;
    this.#components = text.split('.').map(Number);
  }

  /** Compares number by number; a number that is missing counts as 0. */
  atLeast(major: number, minor: number): boolean {
    const [ownMajor = 0, ownMinor = 0] = this.#components;
    return ownMajor > major || (ownMajor === major && ownMinor >= minor);
  }

  compare(other: ApiVersion): number {
    const length = Math.max(this.#components.length, other.#components.length);
    for (let i = 0; i < length; i++) {
      const difference = (this.#components[i] ?? 0) - (other.#components[i] ?? 0);
      if (difference !== 0) return difference;
    }
    return 0;
  }
}

const OLDEST_MINOR = 24;
const NEWEST_MINOR = 51;

/** Every version that is served, oldest first. */
export const API_VERSIONS: readonly ApiVersion[] = Array.from(
  { length: NEWEST_MINOR - OLDEST_MINOR + 1 },
  (_, index) => new ApiVersion(`1.${OLDEST_MINOR + index}`),
);
export const MIN_API_VERSION = new ApiVersion(`1.${OLDEST_MINOR}`);
export const MAX_API_VERSION = new ApiVersion(`1.${NEWEST_MINOR}`);
