/** The configuration of the image that a build makes. */
import { INLINE_CACHE } from '../../../build/cache/cache-document.js';
import type { BuildRequest } from '../../../ports/build.js';
import { excessOf } from '../../../ports/config-limits.js';
import type { ImageConfigDocument, ImageHistory } from '../../../ports/images.js';
import type { Digest, LayerStore } from '../../../ports/storage.js';
import { goTime } from '../../../text/go-quote.js';
import { goJsonParts } from '../../../text/json-parts.js';
import { objectParts } from '../../../text/object-parts.js';
import { ownMember } from '../../../text/own-member.js';
import { sortedParts } from '../../../text/sorted-parts.js';
import { inTurns, type Parts } from '../../../text/turns.js';
import { dataLoss, invalid } from '../../../errors/engine-error.js';
import { cachedSteps, inlineCache } from './cached-steps.js';
import type { Schedule } from './schedule.js';
import type { PlannedHistory, StagePlan } from './stage-plan.js';

const MS = 1000;
/** So many entries of the history get their times together. */
const ENTRIES = 1000;

type RuntimeConfig = NonNullable<ImageConfigDocument['config']>;

/** Returns the configuration with the times and layers that the steps have left. */
export function* imageConfig(
  { state, history: planned }: StagePlan,
  schedule: Schedule,
  layers: Pick<LayerStore, 'find'>,
  topLayer: Digest | undefined,
  request: BuildRequest,
): Parts<ImageConfigDocument> {
  const epoch = epochOf(request);
  const history = yield* withTimes(planned, schedule, epoch);
  const { config, author, architecture, os, variant } = state;
  const excess = excessOf({ config, history });
  if (excess !== undefined) throw invalid(`invalid image configuration: ${excess}`, { code: 'BAD_CONFIG' });
  const tops = topLayer === undefined ? [] : [topLayer];
  const own = { mode: 'min', tops, ...(epoch !== undefined && { epoch }) } as const;
  const created = history.findLast((entry) => entry.created !== undefined)?.created;
  return {
    architecture,
    ...(author === '' ? {} : { author }),
    config: yield* inOrder(config),
    created: created ?? goTime(epoch ?? Date.now()),
    history,
    ...(request.inlineCache && { [INLINE_CACHE]: inlineCache(cachedSteps(schedule, layers, own)) }),
    os,
    rootfs: { type: 'layers', diff_ids: diffIdsOf(layers, topLayer) },
    ...(variant === undefined || variant === '' ? {} : { variant }),
  };
}

/** Returns the bytes as Go writes them. */
export async function configBytes(config: ImageConfigDocument, signal: AbortSignal): Promise<Buffer> {
  return Buffer.from(await inTurns(goJsonParts(config), signal));
}

/** Returns the time that `SOURCE_DATE_EPOCH` gives everything, in ms; undefined: times are the real ones. */
export function epochOf({ buildArgs }: BuildRequest): number | undefined {
  const text = buildArgs.get('SOURCE_DATE_EPOCH');
  return text !== undefined && /^\d{1,12}$/.test(text) ? Number(text) * MS : undefined;
}

/** Entries without a layer have the time of the layer before them, the first ones that of the first new layer. */
function* withTimes(
  planned: readonly PlannedHistory[],
  schedule: Schedule,
  epoch: number | undefined,
): Parts<ImageHistory[]> {
  const entries: ImageHistory[] = [];
  for (const { step, ...entry } of planned) {
    const ms = step === undefined ? undefined : (epoch ?? schedule.resultOf(step).createdAt);
    // All that this build adds is of the time that the client names.
    const own = ms ?? (entry.created === undefined ? epoch : undefined);
    entries.push(own === undefined ? entry : { created: goTime(own), ...entry });
    if (entries.length % ENTRIES === 0) yield;
  }
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
function* inOrder(config: RuntimeConfig): Parts<RuntimeConfig> {
  const { User, Env, Entrypoint, Cmd, WorkingDir, StopSignal, ArgsEscaped, Healthcheck, OnBuild, Shell } = config;
  const all = {
    User,
    ExposedPorts: yield* sorted(config.ExposedPorts),
    Env,
    Entrypoint,
    Cmd,
    Volumes: yield* sorted(config.Volumes),
    WorkingDir,
    Labels: yield* sorted(config.Labels),
    StopSignal,
    ArgsEscaped,
    Healthcheck: isEmpty(Healthcheck) ? undefined : Healthcheck,
    OnBuild,
    Shell,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => !isNothing(value)));
}

function* sorted<T>(members: Readonly<Record<string, T>> | null | undefined): Parts<Record<string, T> | undefined> {
  const names = yield* sortedParts(Object.keys(members ?? {}));
  return names.length > 0 ? yield* objectParts(names, (name) => ownMember(members, name) as T) : undefined;
}

function isEmpty(value: object | null | undefined): boolean {
  return Object.keys(value ?? {}).length === 0;
}

function isNothing(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return Array.isArray(value) && value.length === 0;
}
