/** A new image from a container's file system and configuration. */
import { cancelled, invalid } from '../errors/engine-error.js';
import { excessOf } from '../ports/config-limits.js';
import type { ContainerConfig } from '../ports/container.js';
import type { Image, ImageConfigDocument, ImageHistory, ImageRuntimeConfig, ImageStore } from '../ports/images.js';
import type { Digest, LayerInfo, LayerStore } from '../ports/storage.js';
import { together } from '../text/together.js';
import { applyChanges } from './changes.js';

/** The diff ID of a tar without entries; an image leaves such a layer out. */
const EMPTY_DIFF_ID: Digest = 'sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef';

export interface CommitRequest {
  /** ID of the container, which is also that of its writable layer. */
  readonly containerId: string;
  readonly containerConfig: ContainerConfig;
  /** Image that the container was made from, undefined when it is gone. */
  readonly image: Image | undefined;
  /** Where it is set, this replaces the container's own configuration. */
  readonly config: ImageRuntimeConfig | undefined;
  /** Dockerfile instructions. */
  readonly changes: readonly string[];
  readonly author: string;
  readonly comment: string;
  /** RFC 3339. */
  readonly created: string;
  /** Repository with tag to name the image by. */
  readonly reference: string | undefined;
  readonly architecture: string;
  /** Ends the commit, which leaves nothing then. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Commits the writable layer and registers the image. Throws `invalid` for bad changes before anything is written. The
 * caller must keep the container from changing meanwhile.
 */
export async function commitImage(
  deps: { readonly images: ImageStore; readonly layers: LayerStore },
  request: CommitRequest,
): Promise<Image> {
  const { images, layers } = deps;
  const { containerId, image, reference, signal } = request;
  const own = runtimeConfigOf(request.containerConfig);
  const config = inherit(applyChanges(request.config ?? own, request.changes), own);
  const excess = excessOf({ config });
  if (excess !== undefined) throw invalid(`invalid image configuration: ${excess}`, { code: 'BAD_CONFIG' });
  const layer = await layers.commitWritable(containerId, signal);
  layers.retain(layer.chainId);
  try {
    if (signal?.aborted) throw cancelled('the commit was cancelled');
    const document = documentOf(request, config, layer, stackBelow(layer, layers));
    const bytes = Buffer.from(JSON.stringify(document));
    const committed = await images.createMade(bytes, { document, ...(image && { parent: image.id }) });
    if (reference !== undefined) await images.tag(reference, committed.id);
    return images.get(committed.id) ?? committed;
  } finally {
    // From here on the image holds the layer, or nothing does.
    await layers.release(layer.chainId);
  }
}

/** Returns the part of a container's configuration that belongs into an image. */
function runtimeConfigOf(config: ContainerConfig): ImageRuntimeConfig {
  const {
    User,
    ExposedPorts,
    Env,
    Entrypoint,
    Cmd,
    Volumes,
    WorkingDir,
    Labels,
    StopSignal,
    Healthcheck,
    OnBuild,
    Shell,
    ArgsEscaped,
  } = config;
  return {
    User,
    Env,
    Entrypoint,
    Cmd,
    Volumes,
    WorkingDir,
    Labels,
    OnBuild,
    ...(ExposedPorts === undefined ? {} : { ExposedPorts }),
    ...(StopSignal === undefined ? {} : { StopSignal }),
    ...(Healthcheck === undefined ? {} : { Healthcheck }),
    ...(Shell === undefined ? {} : { Shell }),
    ...(ArgsEscaped === undefined ? {} : { ArgsEscaped }),
  };
}

/** Fills what the given configuration leaves open from the container's. */
function inherit(given: ImageRuntimeConfig, own: ImageRuntimeConfig): ImageRuntimeConfig {
  const names = new Set((given.Env ?? []).map((entry) => entry.split('=', 1)[0]));
  const inheritedEnv = (own.Env ?? []).filter((entry) => !names.has(entry.split('=', 1)[0]));
  const hasEntrypoint = (given.Entrypoint ?? []).length > 0;
  const hasCmd = (given.Cmd ?? []).length > 0;
  const stopSignal = given.StopSignal || own.StopSignal;
  const healthcheck = given.Healthcheck || own.Healthcheck ? { ...own.Healthcheck, ...given.Healthcheck } : undefined;
  return {
    ...given,
    User: given.User || own.User || '',
    ExposedPorts: together(own.ExposedPorts, given.ExposedPorts),
    Env: [...(given.Env ?? []), ...inheritedEnv],
    Labels: together(own.Labels, given.Labels),
    Cmd: hasEntrypoint || hasCmd ? (given.Cmd ?? null) : (own.Cmd ?? null),
    Entrypoint: given.Entrypoint ?? own.Entrypoint ?? null,
    Volumes: own.Volumes || given.Volumes ? together(own.Volumes, given.Volumes) : null,
    WorkingDir: given.WorkingDir || own.WorkingDir || '',
    ...(stopSignal ? { StopSignal: stopSignal } : {}),
    ...(healthcheck ? { Healthcheck: healthcheck } : {}),
  };
}

/**
 * Returns the diff IDs of a layer and those below it, lowest first. The layers are asked, because the image may be
 * gone.
 */
function stackBelow({ parent }: LayerInfo, layers: LayerStore): Digest[] {
  const found: Digest[] = [];
  for (let below = parent && layers.find(parent); below; below = below.parent && layers.find(below.parent))
    found.unshift(below.diffId);
  return found;
}

function documentOf(
  request: CommitRequest,
  config: ImageRuntimeConfig,
  layer: LayerInfo,
  below: readonly Digest[],
): ImageConfigDocument {
  const { image, author, comment, created } = request;
  const isEmpty = layer.diffId === EMPTY_DIFF_ID;
  const step: ImageHistory = {
    created,
    created_by: (request.containerConfig.Cmd ?? []).join(' '),
    ...(author === '' ? {} : { author }),
    ...(comment === '' ? {} : { comment }),
    ...(isEmpty ? { empty_layer: true } : {}),
  };
  return {
    architecture: image?.config.architecture ?? request.architecture,
    ...(image?.config.variant === undefined ? {} : { variant: image.config.variant }),
    os: image?.config.os ?? 'linux',
    created,
    ...(author === '' ? {} : { author }),
    ...(comment === '' ? {} : { comment }),
    container: request.containerId,
    config,
    rootfs: { type: 'layers', diff_ids: isEmpty ? [...below] : [...below, layer.diffId] },
    history: [...(image?.config.history ?? []), step],
  };
}
