/** Provenance: says in the forms of SLSA what a result was made of, and how. */
import { randomUUID } from 'node:crypto';
import { invalid } from '../../errors/engine-error.js';
import { withoutLogin } from '../sources/git-url.js';
import type { BuildMaterial, BuildRecipe } from '../../ports/build.js';

/** `min` leaves out what may be private: the values of arguments, the names of secrets, the steps. */
export type ProvenanceMode = 'min' | 'max';
export type ProvenanceVersion = 'v0.2' | 'v1';

export interface ProvenanceOptions {
  readonly mode: ProvenanceMode;
  readonly version: ProvenanceVersion;
  /** An address for who has built; empty: nobody is named. */
  readonly builderId: string;
  /** The client says that the same build gives the same result. */
  readonly isReproducible: boolean;
}

/** A build as its client has ordered it. */
export interface ProvenanceFacts {
  readonly frontendAttrs: Readonly<Record<string, string>>;
  /** Such as `linux/amd64`: the one that the build ran on. */
  readonly platform: string;
  readonly startedMs: number;
  /** Absent: it is not known how the result was made. */
  readonly recipe?: BuildRecipe;
  /** The context, when it was at an address. */
  readonly context?: BuildMaterial;
  readonly dockerfile?: { readonly name: string; readonly text: Buffer };
}

const PREDICATE_TYPES = {
  'v0.2': 'https://slsa.dev/provenance/v0.2',
  v1: 'https://slsa.dev/provenance/v1',
} as const;
const BUILD_TYPE = 'https://mobyproject.org/buildkit@v1';
const METADATA = `${BUILD_TYPE}#metadata`;
const DEFINITIONS = 'https://github.com/moby/buildkit/blob/master/docs/attestations/slsa-definitions.md';
/** Attributes that say nothing about the result. */
const OF_THE_HOST: ReadonlySet<string> = new Set([
  'cgroup-parent',
  'image-resolve-mode',
  'platform',
  'cache-imports',
  'filename',
]);

/** Characters of the operations of all steps together: each RUN has all variables of its stage. */
const MAX_CHARACTERS = 4 << 20;

/** @throws EngineError invalid when the steps have too much to say. */
export function provenance(
  facts: ProvenanceFacts,
  options: ProvenanceOptions,
): { readonly predicateType: string; readonly predicate: object } {
  const predicate = options.version === 'v1' ? versionOne(facts, options) : versionTwo(facts, options);
  return { predicateType: PREDICATE_TYPES[options.version], predicate };
}

function versionTwo(facts: ProvenanceFacts, options: ProvenanceOptions): object {
  const { context } = facts;
  const materials = materialsOf(facts);
  const { entryPoint, frontend, isComplete, ...parameters } = parametersOf(facts, options);
  const { steps, details } = privateParts(facts, options);
  return {
    builder: { id: options.builderId },
    buildType: BUILD_TYPE,
    ...(materials.length > 0 && { materials }),
    invocation: {
      configSource: { ...context, entryPoint },
      parameters: { frontend, ...parameters },
      environment: { platform: facts.platform },
    },
    ...(steps && { buildConfig: steps }),
    metadata: {
      buildInvocationID: randomUUID(),
      buildStartedOn: timeOf(facts.startedMs),
      buildFinishedOn: timeOf(Date.now()),
      completeness: { parameters: isComplete, environment: true, materials: false },
      reproducible: options.isReproducible,
      [METADATA]: details ?? {},
    },
  };
}

function versionOne(facts: ProvenanceFacts, options: ProvenanceOptions): object {
  const { context } = facts;
  const materials = materialsOf(facts);
  const { entryPoint, isComplete, ...request } = parametersOf(facts, options);
  const { steps, details } = privateParts(facts, options);
  return {
    buildDefinition: {
      buildType: DEFINITIONS,
      externalParameters: { configSource: { ...context, path: entryPoint }, request },
      internalParameters: { builderPlatform: facts.platform, ...(steps && { buildConfig: steps }) },
      ...(materials.length > 0 && { resolvedDependencies: materials }),
    },
    runDetails: {
      builder: { id: options.builderId },
      metadata: {
        invocationId: randomUUID(),
        startedOn: timeOf(facts.startedMs),
        finishedOn: timeOf(Date.now()),
        buildkit_metadata: details ?? {},
        buildkit_completeness: { request: isComplete, resolvedDependencies: false },
        ...(options.isReproducible && { buildkit_reproducible: true }),
      },
    },
  };
}

function materialsOf({ recipe, context }: ProvenanceFacts): BuildMaterial[] {
  const all = new Map<string, BuildMaterial>();
  for (const material of [...(context ? [context] : []), ...(recipe?.materials ?? [])])
    all.set(JSON.stringify(material), material);
  return [...all.values()];
}

interface Parameters {
  readonly entryPoint: string;
  readonly frontend: string;
  /** Nothing has been left out. */
  readonly isComplete: boolean;
  readonly args?: object;
  readonly secrets?: BuildRecipe['secrets'];
  readonly ssh?: BuildRecipe['ssh'];
  readonly locals?: readonly { readonly name: string }[];
}

function parametersOf({ frontendAttrs, recipe }: ProvenanceFacts, { mode }: ProvenanceOptions): Parameters {
  const given = Object.entries(frontendAttrs).filter(
    ([key]) => !OF_THE_HOST.has(key) && !key.startsWith('attest:') && !key.startsWith('vcs:'),
  );
  const isPrivate = ([key]: readonly [string, string]): boolean => /^(?:build-arg|label):/.test(key);
  const shown = mode === 'max' ? given : given.filter((entry) => !isPrivate(entry));
  const args = shown.map(([key, value]) => [key, withoutLogin(value)] as const).sort(([a], [b]) => (a < b ? -1 : 1));
  const { secrets = [], ssh = [] } = mode === 'max' ? (recipe ?? {}) : {};
  return {
    entryPoint: frontendAttrs['filename'] ?? 'Dockerfile',
    frontend: 'dockerfile.v0',
    isComplete: shown.length === given.length,
    ...(args.length > 0 && { args: Object.fromEntries(args) }),
    ...(secrets.length > 0 && { secrets }),
    ...(ssh.length > 0 && { ssh }),
    ...(frontendAttrs['context'] === undefined && { locals: [{ name: 'context' }, { name: 'dockerfile' }] }),
  };
}

/** The steps with their lines are for `max` alone; the repository that the client tells of is for both. */
function privateParts(
  { frontendAttrs, recipe, dockerfile }: ProvenanceFacts,
  { mode }: ProvenanceOptions,
): { readonly steps?: object; readonly details?: object } {
  const vcs = Object.entries(frontendAttrs)
    .filter(([key]) => key.startsWith('vcs:'))
    .map(([key, value]) => [key.slice('vcs:'.length), withoutLogin(value)] as const);
  const named = vcs.length > 0 ? { vcs: Object.fromEntries(vcs) } : undefined;
  if (mode === 'min' || recipe === undefined || recipe.steps.length === 0) return named ? { details: named } : {};
  requireBounded(recipe.steps.map(({ operation }) => operation));
  const name = (at: number): string => `step${at}`;
  const llbDefinition = recipe.steps.map(({ operation, inputs }, at) => ({
    id: name(at),
    op: { Op: operation },
    ...(inputs.length > 0 && { inputs: inputs.map((input) => `${name(input)}:0`) }),
  }));
  const locations = recipe.steps.flatMap(({ lines }, at) => {
    if (lines === undefined) return [];
    const ranges = [{ start: { line: lines.start }, end: { line: lines.end } }];
    return [[name(at), { locations: [{ ranges }] }] as const];
  });
  const infos = dockerfile && [
    { filename: dockerfile.name, language: 'Dockerfile', data: dockerfile.text.toString('base64') },
  ];
  const source = { locations: Object.fromEntries(locations), ...(infos && { infos }) };
  return { steps: { llbDefinition }, details: { ...named, source } };
}

/** Nothing is copied for it, and it ends where there is too much. */
function requireBounded(operations: readonly object[]): void {
  const waiting: unknown[] = [...operations];
  let characters = 0;
  while (waiting.length > 0) {
    const value = waiting.pop();
    if (typeof value === 'string') characters += value.length;
    else if (Array.isArray(value)) for (const item of value) waiting.push(item);
    else if (typeof value === 'object' && value !== null)
      for (const [key, item] of Object.entries(value)) {
        characters += key.length;
        waiting.push(item);
      }
    if (characters > MAX_CHARACTERS)
      throw invalid('the steps of this build are too long for provenance with mode=max: use mode=min');
  }
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}
