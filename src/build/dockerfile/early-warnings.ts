/** Warnings as clients show them during a build; some are known before anything is looked up. */
import { inTurns } from '../../text/turns.js';
import { Checks, type CheckWarning, parseCheckConfig } from './checks.js';
import { DockerfileError } from './dockerfile-error.js';
import { singleLines } from './outline.js';
import { baseObserver, checkDefaults, checkWords } from './from-checks.js';
import { type DockerfileText, readDockerfile } from './parse.js';
import { defaultArgs, type GraphOptions, StageGraph } from './stage-graph.js';

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
  const short = `${rule}: ${detail} (line ${lines.start})`;
  return { vertex, level: 1, short, detail: [description], url, ranges: singleLines(lines) };
}

/**
 * Returns what the words of a Dockerfile and its FROM say against it, so that it is told also when an image cannot be
 * had; nothing for one that cannot be read.
 * @param config goes before what the Dockerfile says.
 */
export async function earlyWarnings(
  source: DockerfileText,
  options: GraphOptions,
  config: string | undefined,
): Promise<readonly CheckWarning[]> {
  let warnings: readonly CheckWarning[] = [];
  try {
    const dockerfile = await readDockerfile(source);
    const written = config ?? dockerfile.directives.check?.value.split(' ', 1)[0] ?? '';
    const checks = new Checks(parseCheckConfig(written));
    ({ warnings } = checks);
    await inTurns(checkWords(dockerfile, checks));
    await inTurns(checkDefaults(dockerfile, defaultArgs(dockerfile, options), checks));
    await inTurns(StageGraph.parts(dockerfile, { ...options, observer: baseObserver(checks, options.host) }));
    return warnings;
  } catch (error) {
    if (error instanceof DockerfileError) return warnings;
    throw error;
  }
}
