import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { checkDockerfile } from '../../src/build/dockerfile/check.js';
import { parseCheckConfig } from '../../src/build/dockerfile/checks.js';
import { DockerfileError } from '../../src/build/dockerfile/dockerfile-error.js';
import { parseDockerfile } from '../../src/build/dockerfile/parse.js';
import { PROBLEM_CASES, type ProblemCase } from './dockerfile-problems.js';

interface Finding {
  readonly warnings: readonly { readonly rule: string; readonly detail: string; readonly lines: readonly number[] }[];
  readonly error?: string;
  readonly lines?: readonly number[];
}

const RECORDED = new URL('../../../test/build/dockerfile-problems.json', import.meta.url);
const AMD64 = { os: 'linux', architecture: 'amd64', variant: '', osVersion: '' };

/** dockerd gives these warnings before it finds the error; we have read the whole file before the first warning. */
const WARNED_BEFORE: ReadonlySet<string> = new Set(['FROM a as b c\n', 'FROM scratch\nMAINTAINER\n']);

function ours({ dockerfile, args = {}, target = '' }: ProblemCase): Finding {
  try {
    const buildArgs = new Map(Object.entries(args));
    const config = buildArgs.get('BUILDKIT_DOCKERFILE_CHECK');
    const { warnings, error } = checkDockerfile(parseDockerfile(dockerfile), {
      target,
      buildArgs,
      host: AMD64,
      buildPlatform: AMD64,
      targetPlatform: AMD64,
      hasContext: () => false,
      image: () => undefined,
      allStages: true,
      config: config === undefined ? undefined : parseCheckConfig(config),
    });
    return {
      warnings: warnings.map(({ rule, detail, lines }) => ({ rule, detail, lines: between(lines) })),
      ...(error && { error: error.message, lines: linesOf(error) }),
    };
  } catch (error) {
    assert.ok(error instanceof DockerfileError, String(error));
    return { warnings: [], error: error.message, lines: linesOf(error) };
  }
}

function linesOf({ lines, others }: DockerfileError): number[] {
  return [...(lines ? [lines] : []), ...others].flatMap(between);
}

function between({ start, end }: { readonly start: number; readonly end: number }): number[] {
  return Array.from({ length: end - start + 1 }, (_, i) => start + i);
}

/** dockerd goes through maps in any order. */
function sorted({ warnings, ...rest }: Finding): Finding {
  const texts = warnings.map((warning) => JSON.stringify(warning)).sort();
  return { warnings: texts.map((text) => JSON.parse(text) as Finding['warnings'][number]), ...rest };
}

describe('errors and checks are those of dockerd', () => {
  const rows = JSON.parse(readFileSync(RECORDED, 'utf8')) as readonly (ProblemCase & Finding)[];
  const recorded = new Map(
    rows.map(({ dockerfile, args, target, warnings, error, lines }) => [
      JSON.stringify([dockerfile, args, target]),
      sorted({ warnings, ...(error !== undefined && { error, lines: lines ?? [] }) }),
    ]),
  );
  for (const problem of PROBLEM_CASES) {
    const { dockerfile, args, target } = problem;
    it(JSON.stringify(args || target ? [dockerfile, args, target] : dockerfile), () => {
      const expected = recorded.get(JSON.stringify([dockerfile, args, target]));
      assert.ok(expected, 'nothing is recorded');
      const warnings = WARNED_BEFORE.has(dockerfile) ? [] : expected.warnings;
      assert.deepEqual(sorted(ours(problem)), { ...expected, warnings });
    });
  }
});
