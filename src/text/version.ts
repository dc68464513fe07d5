/** Versions of which two numbers count, such as those of the kernel. */

export type Version = readonly [major: number, minor: number];

/** Returns the numbers that a text begins with: 6 and 1 of `6.1.0-28-amd64`. What is no number counts as 0. */
export function parseVersion(text: string): Version {
  const [major = '', minor = ''] = text.split('.', 2);
  return [Number.parseInt(major, 10) || 0, Number.parseInt(minor, 10) || 0];
}

export function isAtLeast([major, minor]: Version, [wantedMajor, wantedMinor]: Version): boolean {
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
