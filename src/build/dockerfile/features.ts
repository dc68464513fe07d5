/**
 * Which flags a Dockerfile may use. The frontend that a release of dockerd carries is older than the one that
 * `# syntax=docker/dockerfile:1` asks for, and a `-labs` tag has what is still tried out; we answer them all.
 */
import { detectSyntax } from './directives.js';

export interface Features {
  /** `COPY --parents`. */
  readonly parents: boolean;
  /** `RUN --security` and `RUN --device`. */
  readonly labs: boolean;
}

/** Mirrors put other names before the last part, and often leave `docker` out. */
const OURS = /^[^\s@]+\/dockerfile(?:-upstream)?(?::([\w.-]{1,128}))?(?:@sha256:[0-9a-f]{64})?$/;

/** Returns undefined for a frontend that is not ours to replace. */
export function featuresOf(text: string): Features | undefined {
  const syntax = detectSyntax(text);
  return syntax === undefined ? { parents: false, labs: false } : featuresOfImage(syntax.image);
}

/** @param image of the frontend. */
export function featuresOfImage(image: string): Features | undefined {
  const match = OURS.exec(image);
  if (match === null) return undefined;
  const tag = match[1] ?? 'latest';
  const labs = tag === 'labs' || tag.endsWith('-labs') || tag === 'master';
  const version = /^1\.(\d{1,4})/.exec(tag)?.[1];
  return { parents: labs || version === undefined || Number(version) >= 20, labs };
}
