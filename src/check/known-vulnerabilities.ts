/**
 * Versions of programs between daemon and kernel that are known to let containers out, or to give them more than they
 * should have. The list is short: it has what an engine like this one is open to. Its sources are the security
 * advisories of the projects.
 */

/** The day on which the list was looked through last. */
export const LISTED_ON = '2026-11-25';

export interface Vulnerability {
  readonly id: string;
  /** The first mended version of each line; lines before the first one here got no correction. */
  readonly mendedIn: readonly string[];
  /** True for what only the supervisor's CRI plugin has, which `cri-supervisor` turns on. */
  readonly needsCri?: true;
}

export const VULNERABILITIES: Readonly<Record<'runc' | 'crun' | 'containerd', readonly Vulnerability[]>> = {
  runc: [
    { id: 'CVE-2019-5736', mendedIn: ['1.0.0'] },
    { id: 'CVE-2021-30465', mendedIn: ['1.0.0'] },
    { id: 'CVE-2023-27561', mendedIn: ['1.1.5'] },
    { id: 'CVE-2024-21626', mendedIn: ['1.1.12'] },
    { id: 'CVE-2025-31133', mendedIn: ['1.2.8', '1.3.3', '1.4.0'] },
    { id: 'CVE-2025-52565', mendedIn: ['1.2.8', '1.3.3', '1.4.0'] },
    { id: 'CVE-2025-52881', mendedIn: ['1.2.8', '1.3.3', '1.4.0'] },
    { id: 'CVE-2026-41579', mendedIn: ['1.3.6', '1.4.3', '1.5.0'] },
  ],
  crun: [{ id: 'CVE-2022-27650', mendedIn: ['1.4.4'] }],
  containerd: [
    { id: 'CVE-2022-23648', mendedIn: ['1.4.13', '1.5.10', '1.6.1'], needsCri: true },
    { id: 'CVE-2024-25621', mendedIn: ['1.7.29', '2.0.7', '2.1.5', '2.2.0'] },
    { id: 'CVE-2024-40635', mendedIn: ['1.6.38', '1.7.27', '2.0.4', '2.1.0'], needsCri: true },
    { id: 'CVE-2026-46680', mendedIn: ['1.7.32', '2.0.9', '2.2.4', '2.3.1'], needsCri: true },
    { id: 'CVE-2026-53488', mendedIn: ['1.7.33', '2.0.10', '2.1.9', '2.2.5', '2.3.2'], needsCri: true },
  ],
};

export type Version = readonly [major: number, minor: number, patch: number];

/** Returns the numbers at the beginning of a version; undefined when it does not begin with two or three. */
export function parseVersion(text: string): Version | undefined {
  const [, major, minor, patch = '0'] = /^v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?/.exec(text) ?? [];
  return major === undefined || minor === undefined ? undefined : [Number(major), Number(minor), Number(patch)];
}

/** Returns those of a list that a version has, by its number alone. */
export function vulnerabilitiesOf(version: Version, listed: readonly Vulnerability[]): Vulnerability[] {
  return listed.filter(({ mendedIn }) => !isMended(version, mendedIn));
}

/** A version is mended when its line was and it is not older, or when its line began after all mended ones. */
function isMended([major, minor, patch]: Version, mendedIn: readonly string[]): boolean {
  const mended = mendedIn.flatMap((text) => {
    const version = parseVersion(text);
    return version ? [version] : [];
  });
  const own = mended.find(([first, second]) => first === major && second === minor);
  return own
    ? patch >= own[2]
    : mended.every(([first, second]) => major > first || (major === first && minor > second));
}
