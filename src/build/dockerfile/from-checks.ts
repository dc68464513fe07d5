/** The rules about FROM, about words of instructions, and about names of stages. */
import type { Parts } from '../../text/turns.js';
import type { Dockerfile, Instruction, Stage } from './ast.js';
import type { Checks } from './checks.js';
import { DockerfileError } from './dockerfile-error.js';
import { InstructionExpander } from './expand-instruction.js';
import { formatPlatform, parsePlatform, type Platform } from './platform.js';
import { normalizeReference } from './reference.js';
import { environmentOf, globalScope, type GlobalScope } from './scope.js';
import type { ProcessedWord } from './shell-lexer.js';
import type { FromObserver, GraphOptions, ResolvedStage } from './stage-graph.js';
import { nearest } from './suggest.js';

/** Everything that can be seen without any variable. */
export function* checkWords(dockerfile: Dockerfile, checks: Checks): Parts<void> {
  for (const line of dockerfile.emptyContinuations)
    checks.report('NoEmptyContinuation', { start: line, end: line }, 'Empty continuation line');
  for (const arg of dockerfile.globalArgs) checkInstruction(arg, checks);
  for (const stage of dockerfile.stages) {
    checkStageWords(stage, checks);
    for (const instruction of stage.instructions) {
      checkInstruction(instruction, checks);
      yield;
    }
  }
  checkStageNames(dockerfile, checks);
  yield* checkCasing(dockerfile, checks);
}

function checkInstruction(instruction: Instruction, checks: Checks): void {
  if (instruction.kind === 'MAINTAINER') {
    const detail = 'Maintainer instruction is deprecated in favor of using label';
    checks.report('MaintainerDeprecated', instruction.lines, detail);
  }
  if (instruction.kind === 'ARG')
    checkDescription(
      'ARG',
      instruction.args.map(({ key }) => key),
      instruction,
      checks,
    );
}

function checkStageWords(stage: Stage, checks: Checks): void {
  const { writtenName, asKeyword, keyword, lines } = stage;
  if (writtenName !== writtenName.toLowerCase())
    checks.report('StageNameCasing', lines, `Stage name '${writtenName}' should be lowercase`);
  const isLower = keyword === keyword.toLowerCase();
  const isUpper = keyword === keyword.toUpperCase();
  const expected = isLower ? asKeyword.toLowerCase() : asKeyword.toUpperCase();
  if ((isLower || isUpper) && asKeyword !== expected)
    checks.report('FromAsCasing', lines, `'${asKeyword}' and '${keyword}' keywords' casing do not match`);
  if (stage.name !== '') checkDescription('FROM', [stage.name], stage, checks);
}

function checkDescription(
  instruction: string,
  keys: readonly string[],
  { comments, lines }: Pick<Stage, 'comments' | 'lines'>,
  checks: Checks,
): void {
  const last = comments.at(-1);
  const [first = ''] = keys;
  if (last === undefined || keys.includes(last.split(' ', 1)[0] ?? '')) return;
  const example = keys.length > 1 ? '<arg_key>' : first;
  const detail = `Comment for ${instruction} should follow the format: \`# ${example} <description>\``;
  checks.report('InvalidDefinitionDescription', lines, detail);
}

function checkStageNames({ stages }: Dockerfile, checks: Checks): void {
  const seen = new Set<string>();
  for (const { name, lines } of stages) {
    if (name === '') continue;
    const quoted = JSON.stringify(name);
    if (name === 'context' || name === 'scratch')
      checks.report('ReservedStageName', lines, `Stage name should not use the same name as reserved stage ${quoted}`);
    if (seen.has(name))
      checks.report('DuplicateStageName', lines, `Duplicate stage name ${quoted}, stage names should be unique`);
    seen.add(name);
  }
}

/** The majority of the keywords says how all should be written; upper case when there is none. */
function* checkCasing({ stages }: Dockerfile, checks: Checks): Parts<void> {
  const all = stages.flatMap((stage) => [stage, ...stage.instructions]);
  let balance = 0;
  for (const { keyword } of all) {
    yield;
    if (keyword === keyword.toLowerCase()) balance--;
    else if (keyword === keyword.toUpperCase()) balance++;
  }
  const expected = balance < 0 ? 'lowercase' : 'uppercase';
  for (const { keyword, lines } of all) {
    yield;
    if (keyword === (balance < 0 ? keyword.toLowerCase() : keyword.toUpperCase())) continue;
    const detail = `Command '${keyword}' should match the case of the command majority (${expected})`;
    checks.report('ConsistentInstructionCasing', lines, detail);
  }
}

/** FROM has to make sense when the build gets no arguments. */
export function* checkDefaults(
  dockerfile: Dockerfile,
  defaults: ReadonlyMap<string, string>,
  checks: Checks,
): Parts<void> {
  const expander = new InstructionExpander(dockerfile.escape);
  try {
    const { values } = yield* globalScope(dockerfile, defaults, new Map(), expander);
    for (const { base, lines } of dockerfile.stages) {
      yield;
      const name = expander.matches(base, environmentOf(values)).result;
      if (isReference(name)) continue;
      const detail = `Default value for ARG ${base} results in empty or invalid base image name`;
      checks.report('InvalidDefaultArgInFrom', lines, detail);
    }
  } catch (error) {
    // The build is going to fail with this.
    if (!(error instanceof DockerfileError)) throw error;
  }
}

function isReference(name: string): boolean {
  try {
    return normalizeReference(name) !== '';
  } catch (error) {
    if (error instanceof DockerfileError) return false;
    throw error;
  }
}

export function baseObserver(checks: Checks, host: GraphOptions['host']): FromObserver {
  return {
    base: (stage, unmatched, globals) => reportUndeclared(stage, unmatched, globals, checks),
    platform(stage, words, globals) {
      reportUndeclared(stage, words.unmatched, globals, checks);
      checkPlatformFlag(stage, words, globals, checks, host);
    },
  };
}

function reportUndeclared(stage: Stage, unmatched: ReadonlySet<string>, globals: GlobalScope, checks: Checks): void {
  for (const name of unmatched) {
    if (globals.values.has(name) || globals.declared.has(name)) continue;
    const match = nearest(name, [...globals.declared.keys(), ...globals.values.keys()], true);
    const suggestion = match === '' ? '' : ` (did you mean ${match}?)`;
    checks.report('UndefinedArgInFrom', stage.lines, `FROM argument '${name}' is not declared${suggestion}`);
  }
}

function checkPlatformFlag(
  stage: Stage,
  { matched, unmatched, result }: ProcessedWord,
  { values }: GlobalScope,
  checks: Checks,
  host: GraphOptions['host'],
): void {
  const isTarget = matched.has('TARGETPLATFORM') && result === values.get('TARGETPLATFORM');
  if (matched.size === 1 && unmatched.size === 0 && isTarget) {
    const written = stage.platform;
    const detail = `Setting platform to predefined ${written} in FROM is redundant as this is the default behavior`;
    checks.report('RedundantTargetPlatform', stage.lines, detail);
  }
  if (matched.size > 0 || unmatched.size > 0) return;
  const platform = platformOf(result, host);
  if (platform === undefined || stage.name.includes(platform.os) || stage.name.includes(platform.architecture)) return;
  const detail = `FROM --platform flag should not use constant value ${JSON.stringify(result)}`;
  checks.report('FromPlatformFlagConstDisallowed', stage.lines, detail);
}

function platformOf(text: string, host: GraphOptions['host']): Platform | undefined {
  try {
    return parsePlatform(text, host);
  } catch (error) {
    if (error instanceof DockerfileError) return undefined;
    throw error;
  }
}

/** The image is for the platform that was asked for. */
export function checkPlatformOf(
  { stage, base, platform }: ResolvedStage,
  actual: Platform,
  target: Platform,
  checks: Checks,
): void {
  const expected = platform ?? target;
  if (base.kind !== 'image' || (expected.os === actual.os && expected.architecture === actual.architecture)) return;
  const [wanted, found] = [expected, actual].map((one) => JSON.stringify(formatPlatform(one)));
  const detail = `Base image ${base.written} was pulled with platform ${found}, expected ${wanted} for current build`;
  checks.report('InvalidBaseImagePlatform', stage.lines, detail);
}
