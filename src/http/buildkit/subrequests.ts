/** Answers questions about a Dockerfile that need no build (`docker build --call`, `--check`). */
import type { Dockerfile } from '../../build/dockerfile/ast.js';
import { lintText, outlineText, columns, targetsText } from '../../build/dockerfile/call-text.js';
import type { CheckResult } from '../../build/dockerfile/check.js';
import { checkWithImages, type LookUpImage } from '../../build/dockerfile/check-images.js';
import { type CheckConfig, type CheckWarning, parseCheckConfig } from '../../build/dockerfile/checks.js';
import { DockerfileError } from '../../build/dockerfile/dockerfile-error.js';
import { IgnoreMatcher, ignoreFileNames, parseIgnoreFile } from '../../build/dockerfile/ignore-file.js';
import { lintReport } from '../../build/dockerfile/lint.js';
import { listTargets, outlineParts } from '../../build/dockerfile/outline.js';
import { readDockerfile } from '../../build/dockerfile/parse.js';
import { parsePlatform, type Host } from '../../build/dockerfile/platform.js';
import type { GraphOptions } from '../../build/dockerfile/stage-graph.js';
import { orNoFile } from '../../build/files/small-file.js';
import type { CountBytes } from '../../ports/build.js';
import { goJson } from '../../text/go-json.js';
import { inTurns } from '../../text/turns.js';
import { unsupported } from './grpc-status.js';
import type { LoadedDockerfile } from './dockerfile-source.js';
import type { DockerfileAttrs } from './frontend-attrs.js';
import type { Solution } from './solver.js';

const VERSION = '1.0.0';
const IGNORE_STEP = '[internal] load .dockerignore';
const CONFIG_ARG = 'BUILDKIT_DOCKERFILE_CHECK';

export interface Question {
  /** Such as `frontend.lint`. */
  readonly request: string;
  readonly dockerfile: LoadedDockerfile;
  readonly attrs: DockerfileAttrs;
  readonly host: Host;
  readonly lookUp: LookUpImage;
  /** Shows the reading of the ignore file as a step. */
  readonly inStep?: (name: string, transfer: string, read: (bytes: CountBytes) => Promise<Ignored>) => Promise<Ignored>;
  /** Shows what is said against the Dockerfile where the answer does not tell it. */
  readonly warn?: (warning: CheckWarning) => void;
}

type Ignored = IgnoreMatcher | undefined;

/** @throws EngineError for a question that has no answer, DockerfileError where the Dockerfile allows none. */
export async function answer(question: Question): Promise<Solution> {
  switch (question.request) {
    case 'frontend.lint':
      return lint(question);
    case 'frontend.outline': {
      const dockerfile = await readDockerfile(question.dockerfile);
      const checked = await check(question, dockerfile, { allStages: false });
      for (const warning of checked.warnings) question.warn?.(warning);
      const outline = await inTurns(outlineParts(dockerfile, checked));
      return solution(outline, outlineText(outline));
    }
    case 'frontend.targets': {
      const targets = listTargets(await readDockerfile(question.dockerfile));
      return solution(targets, targetsText(targets));
    }
    case 'frontend.subrequests.describe':
      return describe();
    default:
      throw unsupported(question.request);
  }
}

async function lint(question: Question): Promise<Solution> {
  const { dockerfile } = question;
  const { warnings, error } = await lintResult(question);
  const status = warnings.length > 0 || error !== undefined ? '1' : '0';
  const text = lintText(dockerfile.name, dockerfile.text.toString(), warnings);
  return solution(lintReport(dockerfile, { warnings, error }), text, { 'result.statuscode': status });
}

async function lintResult(question: Question): Promise<Pick<CheckResult, 'warnings' | 'error'>> {
  try {
    return await check(question, await readDockerfile(question.dockerfile), { allStages: true });
  } catch (error) {
    if (error instanceof DockerfileError) return { warnings: [], error };
    throw error;
  }
}

async function check(
  { dockerfile: { name, context }, attrs, host, lookUp, inStep }: Question,
  dockerfile: Dockerfile,
  { allStages }: { readonly allStages: boolean },
): Promise<CheckResult> {
  const read = (bytes?: CountBytes): Promise<Ignored> => ignoreFile(name, context, bytes);
  const shown = (): Promise<Ignored> => (inStep ? inStep(IGNORE_STEP, 'transferring context:', read) : read());
  const ignore = attrs.remoteContext === undefined ? await shown() : undefined;
  const options = { ...graphOptions(attrs, host), allStages, ignore, config: checkConfig(attrs) };
  return checkWithImages(dockerfile, options, lookUp);
}

/** Tells what decides about the stages; of several platforms, the first one. */
export function graphOptions(
  { target, buildArgs, platforms, namedContexts }: DockerfileAttrs,
  host: Host,
): GraphOptions {
  const own = { ...host, variant: '', osVersion: '' };
  const [platform] = platforms;
  return {
    target,
    buildArgs,
    host,
    buildPlatform: own,
    targetPlatform: platform === undefined ? own : parsePlatform(platform, host),
    hasContext: (key) => namedContexts.has(key),
  };
}

function checkConfig({ buildArgs }: DockerfileAttrs): CheckConfig | undefined {
  const written = buildArgs.get(CONFIG_ARG);
  return written === undefined ? undefined : parseCheckConfig(written);
}

async function ignoreFile(
  name: string,
  context: LoadedDockerfile['context'],
  bytes: CountBytes | undefined,
): Promise<Ignored> {
  for (const path of ignoreFileNames(name)) {
    const text = await orNoFile(context.readFile(path, bytes));
    if (text !== undefined) return new IgnoreMatcher(parseIgnoreFile(text));
  }
  return undefined;
}

const METADATA = ['result.json', 'result.txt'].map((name) => ({ name, description: '' }));
const QUESTIONS = [
  {
    name: 'outline',
    description: 'List all parameters current build target supports',
    opts: [{ name: 'target', description: 'Target build stage' }],
  },
  { name: 'targets', description: 'List all targets current build supports', opts: [] },
  { name: 'subrequests.describe', description: 'List available subrequest types', opts: null },
];

function describe(): Solution {
  const documents = QUESTIONS.map(({ name, description, opts }) => ({
    name: `frontend.${name}`,
    version: VERSION,
    type: 'rpc',
    description,
    opts,
    inputs: null,
    metadata: METADATA,
    refs: null,
  }));
  const rows = QUESTIONS.map(({ name, description }) => [name, VERSION, description]);
  return solution(documents, columns([['NAME', 'VERSION', 'DESCRIPTION'], ...rows], 1));
}

function solution(document: unknown, text: string, more: Readonly<Record<string, string>> = {}): Solution {
  const all = { 'result.json': goJson(document), 'result.txt': text, version: VERSION, ...more };
  const metadata = Object.fromEntries(Object.entries(all).map(([key, value]) => [key, Buffer.from(value)]));
  return { exporterResponse: {}, metadata };
}
