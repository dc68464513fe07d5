/** The configuration of the image that a build makes. */
import { INLINE_CACHE } from '../../../build/cache/cache-document.js';
import type { BuildRequest } from '../../../ports/build.js';
import type { ImageConfigDocument, ImageHistory } from '../../../ports/images.js';
import type { Digest, LayerStore } from '../../../ports/storage.js';
import { goTime } from '../../../text/go-quote.js';
import { dataLoss } from '../../../errors/engine-error.js';
import { cachedSteps, inlineCache } from './cached-steps.js';
import type { Schedule } from './schedule.js';
import type { PlannedHistory, StagePlan } from './stage-plan.js';

const MS = 1000;

/** Returns the configuration with the times and layers that the steps have left. */
export function imageConfig(
  { state, history: planned }: StagePlan,
  schedule: Schedule,
  layers: Pick<LayerStore, 'find'>,
  topLayer: Digest | undefined,
  request: BuildRequest,
): ImageConfigDocument {
  const epoch = epochOf(request);
  const history = withTimes(planned, schedule, epoch);
  const { config, author, architecture, os, variant } = state;
  const tops = topLayer === undefined ? [] : [topLayer];
  const own = { mode: 'min', tops, ...(epoch !== undefined && { epoch }) } as const;
  const created = history.findLast((entry) => entry.created !== undefined)?.created;
  return {
    architecture,
    ...(author === '' ? {} : { author }),
    config: inOrder(config),
    created: created ?? goTime(epoch ?? Date.now()),
    history,
    ...(request.inlineCache && { [INLINE_CACHE]: inlineCache(cachedSteps(schedule, layers, own)) }),
    os,
    rootfs: { type: 'layers', diff_ids: diffIdsOf(layers, topLayer) },
    ...(variant === undefined || variant === '' ? {} : { variant }),
  };
}

/** Returns the bytes as Go writes them. */
export function configBytes(config: ImageConfigDocument): Buffer {
  const text = JSON.stringify(config).replace(
    /[<>&\u2028\u2029]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return Buffer.from(text);
}

/** Returns the time that `SOURCE_DATE_EPOCH` gives everything, in ms; undefined: times are the real ones. */
export function epochOf({ buildArgs }: BuildRequest): number | undefined {
  const text = buildArgs.get('SOURCE_DATE_EPOCH');
  return text !== undefined && /^\d{1,12}$/.test(text) ? Number(text) * MS : undefined;
}

/** Entries without a layer have the time of the layer before them, the first ones that of the first new layer. */
function withTimes(planned: readonly PlannedHistory[], schedule: Schedule, epoch: number | undefined): ImageHistory[] {
  const entries = planned.map(({ step, ...entry }) => {
    const ms = step === undefined ? undefined : (epoch ?? schedule.resultOf(step).createdAt);
    if (ms !== undefined) return { created: goTime(ms), ...entry };
    // All that this build adds is of that time.
    return epoch !== undefined && entry.created === undefined ? { created: goTime(epoch), ...entry } : entry;
  });
  const firstNew = entries.findIndex(({ created }) => created === undefined);
  let last = entries.slice(Math.max(firstNew, 0)).find(({ created }) => created !== undefined)?.created;
  last ??= entries.findLast(({ created }) => created !== undefined)?.created;
  return entries.map((entry, at) => {
    if (entry.created === undefined) return last === undefined ? entry : { created: last, ...entry };
    if (firstNew >= 0 && at > firstNew) last = entry.created;
    return entry;
  });
}

function diffIdsOf(layers: Pick<LayerStore, 'find'>, topLayer: Digest | undefined): Digest[] {
  const found: Digest[] = [];
  for (let chain = topLayer; chain !== undefined;) {
    const layer = layers.find(chain);
    if (layer === undefined) throw dataLoss(`layer ${chain} is not here`, { code: 'LAYER_MISSING' });
    found.push(layer.diffId);
    chain = layer.parent;
  }
  return found.reverse();
}

/** The members in the order in which other builders write them; what says nothing is left out. */
function inOrder(config: NonNullable<ImageConfigDocument['config']>): NonNullable<ImageConfigDocument['config']> {
  const { User, ExposedPorts, Env, Entrypoint, Cmd, Volumes, WorkingDir, Labels, StopSignal, ArgsEscaped } = config;
  const { Healthcheck, OnBuild, Shell } = config;
  const sorted = <T>(members: Record<string, T> | null | undefined): Record<string, T> | undefined =>
    members ? Object.fromEntries(Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1))) : undefined;
  const all = {
    User,
    ExposedPorts: sorted(ExposedPorts),
    Env,
    Entrypoint,
    Cmd,
    Volumes: sorted(Volumes),
    WorkingDir,
    Labels: sorted(Labels),
    StopSignal,
    ArgsEscaped,
    Healthcheck,
    OnBuild,
    Shell,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => !isNothing(value)));
}

function isNothing(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
