/** Warnings as clients show them during a build; some are known before anything is looked up. */
import { Checks, type CheckWarning, parseCheckConfig } from './checks.js';
import { DockerfileError } from './dockerfile-error.js';
import { checkWords } from './from-checks.js';
import { parseDockerfile } from './parse.js';

export interface ShownWarning {
  readonly vertex: string;
  readonly level: number;
  readonly short: string;
  readonly detail: readonly string[];
  readonly url: string;
  readonly ranges: readonly { readonly start: number; readonly end: number }[];
}

/** @param vertex is the step that the warning belongs to. */
export function shownWarning(vertex: string, { rule, detail, lines, description, url }: CheckWarning): ShownWarning {
  const ranges = Array.from({ length: lines.end - lines.start + 1 }, (_, at) => {
    return { start: lines.start + at, end: lines.start + at };
  });
  return { vertex, level: 1, short: `${rule}: ${detail} (line ${lines.start})`, detail: [description], url, ranges };
}

/**
 * Returns what the words of a Dockerfile say against it; nothing for one that cannot be read.
 * @param config goes before what the Dockerfile says.
 */
export function earlyWarnings(text: Buffer, config: string | undefined): readonly CheckWarning[] {
  try {
    const dockerfile = parseDockerfile(text);
    const written = config ?? dockerfile.directives.check?.value.split(' ', 1)[0] ?? '';
    const checks = new Checks(parseCheckConfig(written));
    checkWords(dockerfile, checks);
    return checks.warnings;
  } catch (error) {
    if (error instanceof DockerfileError) return [];
    throw error;
  }
}
