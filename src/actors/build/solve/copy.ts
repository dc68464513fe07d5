/** COPY and ADD of files that other steps have brought. */
import type { AddInstruction, CopyInstruction } from '../../../build/dockerfile/ast.js';
import type { SourceTree } from '../../../build/files/copy-files.js';
import { absolutePath, copyLayer, type CopyPlan, digestCopy } from '../copy-step.js';
import type { StageState } from '../stage-state.js';
import { withoutKey } from './failure.js';
import type { Operation, StepWork } from './step.js';
import { NO_FILES } from './step-result.js';

/** The files of one source of the step. */
export interface CopiedPaths {
  /** Its place among the sources of the step; undefined: there are no files. */
  readonly source: number | undefined;
  readonly paths: readonly string[];
  /** They were fetched, so archives among them stay packed unless the instruction says otherwise. */
  readonly isRemote?: boolean;
}

export function copyOperation(
  instruction: AddInstruction | CopyInstruction,
  state: StageState,
  copied: readonly CopiedPaths[],
): Operation {
  const { kind, chown, chmod, destination, exclude } = instruction;
  const dest = absolutePath(state, destination);
  const parents = kind === 'COPY' && instruction.parents;
  const planOf = async (work: StepWork): Promise<CopyPlan> => {
    const trees: SourceTree[] = [];
    let isMapped = false;
    for (const { source, paths, isRemote } of copied) {
      const result = source === undefined ? undefined : work.sources[source];
      const files = await work.tools.filesOf(result ?? NO_FILES);
      isMapped ||= files.isMapped;
      const unpacks = isRemote === true && { unpacks: kind === 'ADD' && instruction.unpack === true };
      const { directory: root, digests, ignore } = files;
      trees.push({ root, digests, sources: paths, ignore, exclude, ...unpacks, parents });
    }
    return { instruction, trees, isMapped, belongsToRoot: false };
  };
  return {
    identity: [
      [kind, chown, chmod, exclude, kind === 'COPY' ? instruction.parents : (instruction.unpack ?? null)],
      [dest, /(?:^|\/)\.{0,2}$/.test(destination), copied],
    ],
    recipe: {
      operation: {
        file: {
          actions: copied.flatMap(({ paths }) => paths.map((src) => ({ Action: { copy: { src, dest } } }))),
        },
      },
    },
    content: async (work) => {
      const plan = await planOf(work);
      const keys = copied.map(({ source, isRemote }) =>
        isRemote ? work.sources[source ?? -1]?.files?.key : undefined,
      );
      const trees = plan.trees.filter((_, at) => keys[at] === undefined);
      try {
        const hashed = { ...plan, trees, belongsToRoot: chown !== '' };
        const { hex } = await digestCopy(work.tools.deps, hashed, work.signal);
        return [hex, plan.isMapped, keys.filter((key) => key !== undefined)];
      } catch (error) {
        throw withoutKey(error);
      }
    },
    perform: async (work) => {
      const { deps, layers } = work.tools;
      const files = { ...state, topLayer: work.parent?.layer };
      const layer = await copyLayer(deps, layers, files, await planOf(work), work.signal);
      return { layer: layer.chainId };
    },
  };
}
