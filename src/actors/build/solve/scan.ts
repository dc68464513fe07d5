/**
 * A scan: a program in an image of its own looks into the files of a result and writes statements about them, by the
 * protocol of BuildKit for scanners (docs/attestations/sbom-protocol.md in its repository).
 */
import { PLAIN_MOUNT } from '../../../build/dockerfile/ast.js';
import { parseBool } from '../../../build/dockerfile/go-values.js';
import type { Platform } from '../../../build/dockerfile/platform.js';
import { normalizeReference } from '../../../build/dockerfile/reference.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import { internal } from '../../../errors/engine-error.js';
import type { ScanOrder } from '../../../ports/build.js';
import { type BaseImage, imageStep } from './base.js';
import type { PlanInputs } from './plan-inputs.js';
import { runOperation } from './run.js';
import { imageState } from './stage-plan.js';
import { newStep, type PlannedStep } from './step.js';

/** A stage that was planned. */
export interface ScannableStage {
  readonly name: string;
  /** undefined: something else stands for the stage. */
  readonly scope: StageScope | undefined;
  /** undefined: it has no files. */
  readonly last: PlannedStep | undefined;
  readonly isTarget: boolean;
  readonly isFresh: boolean;
}

export interface ScanPlan {
  /** That of the result. */
  readonly platform: string;
  readonly stages: readonly ScannableStage[];
  /** The platform that the program must be for; undefined: one that is here may have any. */
  readonly host: Platform | undefined;
}

/** Files that the program gets, read-only. */
interface Scanned {
  readonly path: string;
  readonly files: PlannedStep | undefined;
}

const DESTINATION = '/run/out/';
const SOURCE = '/run/src/core/sbom';
const EXTRAS = '/run/src/extras/';

/** Returns the step whose files are the statements. @throws EngineError for an image that is not there. */
export async function planScan(
  { images, main }: Pick<PlanInputs, 'images' | 'main'>,
  order: ScanOrder,
  { platform, stages, host }: ScanPlan,
): Promise<PlannedStep> {
  const { generator } = order;
  const name = normalizeReference(generator);
  const image = await images.load({ name, written: generator, platform: host, lines: undefined });
  const target = stages.find(({ isTarget }) => isTarget);
  const others = stages.filter((stage) => !stage.isTarget && isWanted(stage, 'BUILDKIT_SBOM_SCAN_STAGE'));
  const extras = others.map((stage): Scanned => ({ path: `${EXTRAS}sbom-${stage.name}`, files: stage.last }));
  if (target && isWanted(target, 'BUILDKIT_SBOM_SCAN_CONTEXT'))
    extras.push({ path: `${EXTRAS}sbom-context`, files: main.step(['/']) });
  return newStep({
    name: `[${platform}] generating sbom using ${generator}`,
    ...scanOf(image, order, [{ path: SOURCE, files: target?.last }, ...extras]),
    parent: imageStep(image, `[${platform} sbom] `, undefined),
    lines: undefined,
    isFresh: [target, ...others].some((stage) => stage?.isFresh),
  });
}

/** The value is true for all stages, or a list of their names. */
function isWanted({ name, scope }: ScannableStage, argument: string): boolean {
  const value = scope?.argument(argument);
  if (value === undefined) return false;
  return parseBool(value) ?? value.split(',').includes(name);
}

function scanOf(
  { config: document, name }: BaseImage,
  { parameters }: ScanOrder,
  scanned: readonly Scanned[],
): Pick<PlannedStep, 'operation' | 'sources'> {
  const { config, ...rest } = imageState(document);
  const argv = [...(config.Entrypoint ?? []), ...(config.Cmd ?? [])];
  if (argv.length === 0) throw internal(`scanner ${name} does not have cmd`);
  const env = new Map((config.Env ?? []).map((entry): [string, string] => [entry.split('=', 1)[0] ?? '', entry]));
  const set = (key: string, value: string): void => void env.set(key, `${key}=${value}`);
  set('BUILDKIT_SCAN_DESTINATION', DESTINATION);
  set('BUILDKIT_SCAN_SOURCE', SOURCE);
  if (scanned.length > 1) set('BUILDKIT_SCAN_SOURCE_EXTRAS', EXTRAS);
  for (const [key, value] of parameters) set(`BUILDKIT_SCAN_${key}`, value);
  const sources = scanned.flatMap(({ files }) => files ?? []);
  const operation = runOperation({
    instruction: {
      mounts: [
        { ...PLAIN_MOUNT, type: 'tmpfs', target: '/tmp', readOnly: false },
        ...scanned.map(({ path }) => ({ ...PLAIN_MOUNT, target: path })),
      ],
      network: 'default',
      security: 'sandbox',
      devices: [],
    },
    // Files of all owners are to be read.
    state: { ...rest, config: { ...config, User: '' } },
    network: 'default',
    words: { args: argv, program: undefined, summary: '' },
    argv,
    env: [...env.values()],
    mountSources: [undefined, ...scanned.map(({ files }) => (files ? sources.indexOf(files) : ('none' as const)))],
    collects: DESTINATION,
  });
  return { operation, sources };
}
