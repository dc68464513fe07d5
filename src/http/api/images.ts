/** Images as the Engine API writes them, for every version. */
import type { AtLeast } from './at-least.js';
import type { HistoryStep } from '../../images/history.js';
import type { PruneSelection } from '../../images/prune.js';
import { platformsOf } from '../../images/platform.js';
import type { RemovedItem } from '../../images/removal.js';
import { createdMs, type ImageSelection, type SelectedImage } from '../../images/selection.js';
import type { Image, ImageRuntimeConfig } from '../../ports/images.js';
import type { OciDescriptor } from '../../ports/published-image.js';
import { hasConfigField } from './container-create.js';
import { boolean, dictionary, emptyObject, list, nullable, object, optional, string, words } from './decode.js';
import type { Filters } from './filters.js';
import { parseInstant, untilOf } from './until.js';
import { healthcheck } from './healthcheck.js';

const LIST_FILTERS = ['dangling', 'label', 'before', 'since', 'reference', 'until'];
const PRUNE_FILTERS = ['dangling', 'label', 'label!', 'until'];

/** Decodes the selection of GET /images/json. Throws `invalid` for unknown filters and bad values. */
export function decodeSelection(filters: Filters, all: boolean, nowMs: number): ImageSelection {
  filters.allow(LIST_FILTERS);
  const until = filters.get('until').map((text) => parseInstant(text, nowMs));
  return {
    all,
    dangling: filters.flag('dangling'),
    before: filters.get('before'),
    since: filters.get('since'),
    untilMs: until.length > 0 ? Math.min(...until) : undefined,
    reference: filters.get('reference'),
    matchesLabels: (labels) => filters.matchesLabels(labels),
  };
}

/** Decodes the selection of POST /images/prune. Throws `invalid` for unknown filters and bad values. */
export function decodePrune(filters: Filters, nowMs: number): PruneSelection {
  filters.allow(PRUNE_FILTERS);
  return {
    danglingOnly: filters.flag('dangling') ?? true,
    untilMs: untilOf(filters, nowMs),
    matchesLabels: (labels) =>
      filters.matchesLabels(labels) && !(filters.has('label!') && filters.matchesLabels(labels, 'label!')),
  };
}

/**
 * Renders one element of GET /images/json. @param containers, sharedSize, manifests undefined: not asked for.
 * @param contentBytes is the size of what is kept as registries have it, beside the files; undefined: nothing is.
 */
export function summaryJson(
  { image, repoTags, repoDigests }: SelectedImage,
  {
    containers,
    sharedSize,
    manifests,
    contentBytes = 0,
  }: {
    readonly containers: number | undefined;
    readonly sharedSize: number | undefined;
    readonly manifests: readonly object[] | undefined;
    readonly contentBytes: number | undefined;
  },
  atLeast: AtLeast,
): Readonly<Record<string, unknown>> {
  const size = platformsOf(image).reduce((sum, { sizeBytes }) => sum + sizeBytes, contentBytes);
  const hidesNone = atLeast(1, 43) || repoTags.length + repoDigests.length > 0;
  return {
    Containers: containers ?? -1,
    Created: Math.floor(createdMs(image) / 1000),
    ...descriptorJson(image, atLeast),
    Id: image.id,
    Labels: image.config.config?.Labels ?? null,
    ...(manifests === undefined ? {} : { Manifests: manifests }),
    ParentId: image.parent,
    RepoDigests: hidesNone ? repoDigests : ['<none>@<none>'],
    RepoTags: hidesNone ? repoTags : ['<none>:<none>'],
    SharedSize: sharedSize ?? -1,
    Size: size,
    ...(atLeast(1, 44) ? {} : { VirtualSize: size }),
  };
}

/**
 * Renders `Config` of inspect. @param isOld Before 1.50 it is a container configuration, whose other members are empty.
 */
function configJson(config: ImageRuntimeConfig, isOld: boolean): Readonly<Record<string, unknown>> {
  const hasPorts = Object.keys(config.ExposedPorts ?? {}).length > 0;
  return {
    ...(isOld ? { Hostname: '', Domainname: '' } : {}),
    User: config.User ?? '',
    ...(isOld ? { AttachStdin: false, AttachStdout: false, AttachStderr: false } : {}),
    ...(hasPorts ? { ExposedPorts: config.ExposedPorts } : {}),
    ...(isOld ? { Tty: false, OpenStdin: false, StdinOnce: false } : {}),
    Env: config.Env ?? null,
    Cmd: config.Cmd ?? null,
    ...(config.Healthcheck === undefined ? {} : { Healthcheck: config.Healthcheck }),
    ...(config.ArgsEscaped === true ? { ArgsEscaped: true } : {}),
    ...(isOld ? { Image: '' } : {}),
    Volumes: config.Volumes ?? null,
    WorkingDir: config.WorkingDir ?? '',
    Entrypoint: config.Entrypoint ?? null,
    OnBuild: config.OnBuild ?? null,
    Labels: config.Labels ?? null,
    ...(config.StopSignal ? { StopSignal: config.StopSignal } : {}),
    ...((config.Shell ?? []).length > 0 ? { Shell: config.Shell } : {}),
  };
}

function descriptorJson({ published }: Image, atLeast: AtLeast): { readonly Descriptor?: OciDescriptor } {
  return published === undefined || !atLeast(1, 48) ? {} : { Descriptor: published.target };
}

const ZERO_TIME = '0001-01-01T00:00:00Z';

interface ShownParts {
  readonly graphDriver: { readonly Name: string; readonly Data: Readonly<Record<string, string>> | null };
  readonly manifests: readonly object[] | undefined;
  /** In bytes. */
  readonly size: number;
}

/**
 * Renders GET /images/{name}/json. @param manifests undefined: not asked for. @param size of what is kept as registries
 * have it, or else of the files.
 */
export function inspectJson(
  image: Image,
  { graphDriver, manifests, size }: ShownParts,
  atLeast: AtLeast,
): Readonly<Record<string, unknown>> {
  const { config } = image;
  const created = config.created ?? (atLeast(1, 44) ? undefined : ZERO_TIME);
  const runtime = configJson(config.config ?? {}, !atLeast(1, 50));
  return {
    Id: image.id,
    ...descriptorJson(image, atLeast),
    ...(manifests === undefined ? {} : { Manifests: manifests }),
    RepoTags: image.repoTags,
    RepoDigests: image.repoDigests,
    Parent: image.parent,
    // Builders that write no comment of the image write those of its steps.
    Comment: config.comment || (config.history?.at(-1)?.comment ?? ''),
    ...(created === undefined ? {} : { Created: created }),
    ...(atLeast(1, 45) || !config.container ? {} : { Container: config.container }),
    ...(atLeast(1, 45) ? {} : { ContainerConfig: configJson({}, true) }),
    DockerVersion: config.docker_version ?? '',
    Author: config.author ?? '',
    Config: runtime,
    Architecture: config.architecture,
    ...(config.variant ? { Variant: config.variant } : {}),
    Os: config.os,
    ...(config['os.version'] ? { OsVersion: config['os.version'] } : {}),
    Size: size,
    ...(atLeast(1, 44) ? {} : { VirtualSize: size }),
    GraphDriver: graphDriver,
    RootFS: { Type: 'layers', Layers: config.rootfs.diff_ids },
    Metadata: { LastTagTime: image.lastTagTime ?? ZERO_TIME },
  };
}

/** Renders one element of GET /images/{name}/history. */
export function historyJson(step: HistoryStep): Readonly<Record<string, unknown>> {
  return {
    Id: step.id,
    Created: step.created,
    CreatedBy: step.createdBy,
    Tags: step.tags.length > 0 ? step.tags : null,
    Size: step.sizeBytes,
    Comment: step.comment,
  };
}

const commitConfig = object({
  User: string(),
  ExposedPorts: optional(dictionary(emptyObject())),
  Env: nullable(list(string())),
  Cmd: nullable(words()),
  Healthcheck: optional(healthcheck),
  ArgsEscaped: optional(boolean()),
  Volumes: nullable(dictionary(emptyObject())),
  WorkingDir: string(),
  Entrypoint: nullable(words()),
  OnBuild: nullable(list(string())),
  Labels: nullable(dictionary(string())),
  StopSignal: optional(string()),
  Shell: optional(list(string())),
});

/**
 * Decodes the body of POST /commit; undefined when it says nothing about the configuration: some clients send their
 * query there too. Throws `invalid` naming the field.
 */
export function decodeCommitConfig(body: unknown): ImageRuntimeConfig | undefined {
  if (body === undefined || body === null) return undefined;
  const config = commitConfig.decode(body, '') as ImageRuntimeConfig;
  return hasConfigField(body) ? config : undefined;
}

/** Renders what a removal or a prune has taken away, in its order. */
export function removedJson(items: readonly RemovedItem[]): unknown[] {
  return items.map((item) => ('untagged' in item ? { Untagged: item.untagged } : { Deleted: item.deleted }));
}
