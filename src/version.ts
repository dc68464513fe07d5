/**
 * Tells which build this is. In the bundle the figures are constants (scripts/bundle.mjs); elsewhere package.json is
 * read.
 */
import { readFileSync } from 'node:fs';

interface Build {
  /** The version of this daemon. */
  readonly version: string;
  /**
   * The version that clients see: the release of the known engine whose API this daemon speaks. Clients decide by this
   * number which features they use. If it were our own, they would treat this daemon as an engine of many years ago.
   */
  readonly engineVersion: string;
  /** Short name of the commit; '' where the sources are not in a repository. */
  readonly commit: string;
  /** RFC 3339; '' for what was not bundled. */
  readonly time: string;
}

/** A Build as JSON. */
declare const ENGINED_BUILD: string | undefined;

export const BUILD: Build = typeof ENGINED_BUILD === 'undefined' ? unbundled() : (JSON.parse(ENGINED_BUILD) as Build);

/** The version as it is sent to clients. */
export const PRODUCT_VERSION = BUILD.engineVersion;

function unbundled(): Build {
  // This file is in dist/src.
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version, engineVersion } = JSON.parse(text) as Pick<Build, 'version' | 'engineVersion'>;
  return { version, engineVersion, commit: '', time: '' };
}
