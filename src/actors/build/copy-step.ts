/** COPY, ADD and WORKDIR: layers without a container. */
import { posix } from 'node:path';
import type { AddInstruction, CopyInstruction } from '../../build/dockerfile/ast.js';
import { copyInTwo } from '../../build/files/copy-in-two.js';
import type { SourcesDigest, SourceTree } from '../../build/files/copy-files.js';
import { cleanPath, joinPath } from '../../build/files/paths.js';
import { copyOwner, userOfNothing } from './copy-owner.js';
import { EngineError, invalid, isEngineError } from '../../errors/engine-error.js';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import type { LayerInfo } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import { DOWNLOAD_FAILED } from './download-file.js';
import type { StageState } from './stage-state.js';
import type { StepLayers } from './step-layers.js';

export interface CopyDeps {
  readonly pool: WorkerPool;
  readonly idMaps: IdMaps | undefined;
  readonly lookUpUser: (rootfs: string, user: string) => Promise<Owner>;
}

export interface CopyPlan {
  readonly instruction: AddInstruction | CopyInstruction;
  readonly trees: readonly SourceTree[];
  /** The trees are of images, whose files have the owners of this host. */
  readonly isMapped: boolean;
  /** Everything belongs to root unless the instruction says otherwise. */
  readonly belongsToRoot: boolean;
  readonly isClassic?: true;
}

export function digestCopy({ pool }: CopyDeps, plan: CopyPlan, signal: AbortSignal): Promise<SourcesDigest> {
  return pool.run('build-digest', { trees: plan.trees, ignoresOwners: plan.belongsToRoot }, { signal });
}

/** @throws EngineError invalid, not-found with code NO_SOURCE. */
export function copyLayer(
  deps: CopyDeps,
  layers: StepLayers,
  state: StageState,
  { instruction, trees, isMapped, belongsToRoot, isClassic }: CopyPlan,
  signal: AbortSignal,
): Promise<LayerInfo> {
  const { destination, chown, chmod, kind } = instruction;
  return layers.make(state.topLayer, async (rootfs, layer) => {
    const lookUp = state.topLayer === undefined && isClassic !== true ? userOfNothing : deps.lookUpUser;
    const owner = chown === '' ? undefined : await copyOwner(rootfs, chown, lookUp, isClassic === true);
    return copyInTwo(
      deps.pool,
      {
        trees,
        rootfs,
        destination: absolutePath(state, destination),
        // A destination that ends in `/.` may be a file for the classic builder.
        isIntoDirectory: isClassic ? destination.endsWith('/') : /(?:^|\/)\.?\.?$/.test(destination),
        owner,
        ...(isClassic && { classic: { belongsToRoot } }),
        isMapped,
        chmod,
        unpacks: kind === 'ADD' && (isClassic || instruction.unpack !== false),
        parents: kind === 'COPY' && instruction.parents,
        idMaps: deps.idMaps,
        layer,
      },
      signal,
    );
  });
}

/** Makes the directory and those above it, which belong to the user; empty means root. */
export function directoryLayer(
  { pool, idMaps, lookUpUser }: CopyDeps,
  layers: StepLayers,
  state: StageState,
  path: string,
  user = '',
): Promise<LayerInfo> {
  return layers.make(state.topLayer, async (rootfs) => {
    const owner = user === '' ? undefined : await copyOwner(rootfs, user, lookUpUser, false);
    return pool.run('build-copy', {
      trees: [],
      rootfs,
      destination: path,
      isIntoDirectory: true,
      owner,
      isMapped: false,
      chmod: '',
      unpacks: false,
      parents: false,
      idMaps,
    });
  });
}

/** Returns a path in the image, which may be relative to the working directory. */
export function absolutePath({ config }: StageState, path: string): string {
  return cleanPath(path.startsWith('/') ? path : joinPath(config.WorkingDir || '/', path));
}

/** Returns the failure of a step in the words of the classic builder. */
export function copyFailure(error: unknown, kind: string, isFromStage: boolean): unknown {
  if (!isEngineError(error)) return error;
  const failed = (what: string): EngineError =>
    new EngineError(error.kind, `${kind} failed: ${what}`, { cause: error });
  if (error.code === DOWNLOAD_FAILED) return failed(error.message);
  if (error.code !== 'NO_SOURCE') return error;
  const source = error.details['source'];
  if (typeof source !== 'string') return failed(error.message);
  const path = source.replace(/^\.?\/+/, '');
  const where = isFromStage ? '' : 'file not found in build context or excluded by .dockerignore: ';
  return failed(`${where}stat ${path}: file does not exist`);
}

/** @throws EngineError invalid for a source that leads out of the context; the classic builder refuses these. */
export function refuseOutside(kind: string, sources: readonly string[]): void {
  const outside = sources.find((source) => /^\/?\.\.(?:\/|$)/.test(posix.normalize(source)));
  if (outside !== undefined) throw invalid(`${kind} failed: forbidden path outside the build context: ${outside} ()`);
}

/** @throws EngineError invalid when there are no files, or too many for one name; only the classic builder minds. */
export function checkCount({ kind, destination }: AddInstruction | CopyInstruction, count: number): void {
  if (count === 0) throw invalid(`${kind} failed: no source files were specified`);
  if (count === 1 || destination.endsWith('/')) return;
  throw invalid(
    `When using ${kind} with more than one source file, the destination must be a directory and end with a /`,
  );
}
