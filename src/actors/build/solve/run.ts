/** RUN: a process that changes the files of the stage. */
import type { RunInstruction, RunMount } from '../../../build/dockerfile/ast.js';
import { isEngineError } from '../../../errors/engine-error.js';
import type { RecipeGift, RunSettings } from '../../../ports/build.js';
import type { StepNetwork } from '../run/entitlements.js';
import { runStep } from '../run/run-step.js';
import { DEFAULT_AGENT, secretId } from '../run/step-mounts.js';
import type { StageState } from '../stage-state.js';
import { processText } from './history-text.js';
import { prefixed, withoutKey } from './failure.js';
import type { RunWords } from './run-words.js';
import type { Operation, OperationRecipe, StepWork } from './step.js';
import { NO_FILES, type StepResult } from './step-result.js';

/** All of an instruction that does not depend on its words. */
type RunTerms = Pick<RunInstruction, 'mounts' | 'network' | 'security' | 'devices'>;

export interface PlannedRun {
  readonly instruction: RunTerms;
  readonly state: StageState;
  /** With the setting of the build. */
  readonly network: StepNetwork;
  readonly words: RunWords;
  /** The command line with the shell of the stage. */
  readonly argv: readonly string[];
  /** `NAME=value` of ENV and ARG. */
  readonly env: readonly string[];
  /** For each mount the place of its files among the sources of the step; `none`: of a stage without files. */
  readonly mountSources: readonly (number | 'none' | undefined)[];
  /**
   * An empty directory at this path gets the result, and what else the process changes is forgotten. Absent: all that
   * it changes is the result.
   */
  readonly collects?: string;
}

export function runOperation(planned: PlannedRun): Operation {
  const { instruction, state, network, words, argv, env, mountSources, collects } = planned;
  const { mounts, security } = instruction;
  return {
    identity: [
      ['RUN', argv, words.program?.content ?? null, env],
      [state.config.WorkingDir ?? '', state.config.User ?? '', mounts, network, security],
      ...(collects === undefined ? [] : [collects]),
    ],
    description: `mount / from exec ${argv.join(' ')}`,
    isProcess: true,
    recipe: recipeOf(planned),
    // A name that the client gives to the machine is seen by the command.
    content: async (work) => {
      const { run } = work.tools.request;
      try {
        return [await mountedContent(planned, work), run.hostname, ...surroundings(run)];
      } catch (error) {
        throw withoutKey(error);
      }
    },
    perform: async (work) => {
      const { tools, step, sources, signal } = work;
      const { deps, layers, shim, rooms, request } = tools;
      const { observer } = request;
      try {
        const layer = await runStep(
          deps,
          {
            instruction,
            state: { ...state, topLayer: work.parent?.layer },
            argv,
            program: words.program,
            env,
            request,
            layers,
            shim,
            rooms,
            ...(collects !== undefined && { collects }),
            treeOf: async (mount) => {
              const place = mountSources[mount];
              if (place === undefined) return undefined;
              const result = (place === 'none' ? undefined : sources[place]) ?? NO_FILES;
              const source = instruction.mounts[mount]?.source ?? '';
              return {
                ...(await tools.filesOf(result, deps.shownMaps)),
                identity: () => identityOf(result, source, work),
              };
            },
            output: async (stream, bytes) => {
              observer.log(step.digest, stream, bytes);
              await observer.ready?.();
            },
          },
          signal,
        );
        return { layer: layer.chainId };
      } catch (error) {
        if (signal.aborted || (isEngineError(error) && error.code === 'STEP_REFUSED')) throw error;
        throw prefixed(error, `${processText(argv)} did not complete successfully: `);
      }
    },
  };
}

function recipeOf({ instruction, state, network, argv, env }: PlannedRun): OperationRecipe {
  const { mounts, security } = instruction;
  const named = (kind: string, idOf: (mount: RunMount) => string): RecipeGift[] =>
    mounts
      .filter(({ type }) => type === kind)
      .map((mount) => ({ id: idOf(mount), ...(!mount.required && { optional: true }) }));
  const { WorkingDir = '/', User = '' } = state.config;
  const meta = { args: argv, env, cwd: WorkingDir, ...(User !== '' && { user: User }) };
  const shown = [{ dest: '/' }, ...mounts.map(({ type, target }) => ({ dest: target, mountType: type }))];
  // As in BuildKit's description of a step, nothing is said of what is so by itself.
  const special = { ...(network !== 'default' && { network }), ...(security !== 'sandbox' && { security }) };
  return {
    operation: { exec: { meta, ...special, mounts: shown } },
    secrets: named('secret', secretId),
    ssh: named('ssh', ({ id }) => id || DEFAULT_AGENT),
  };
}

/** Returns what else a command may see of a build; nothing where all is as usual. */
function surroundings({ extraHosts, ulimits, shmSize, cgroupParent }: RunSettings): readonly unknown[] {
  // The address of a name may be another one on each host: as in BuildKit, it does not count.
  const names = extraHosts.map((entry) => entry.slice(0, Math.max(0, entry.indexOf(':'))));
  const isUsual = names.length === 0 && ulimits.length === 0 && shmSize === 0 && cgroupParent === '';
  return isUsual ? [] : [names, ulimits, shmSize, cgroupParent];
}

/** Returns what tells the files of mounts apart: those of layers are known by their results. */
async function mountedContent({ instruction, mountSources }: PlannedRun, work: StepWork): Promise<unknown> {
  const found: unknown[] = [];
  for (const [at, place] of mountSources.entries()) {
    const result = typeof place === 'number' ? work.sources[place] : undefined;
    const mount = instruction.mounts[at];
    if (result === undefined || mount === undefined) continue;
    found.push(result.files === undefined ? [result.key, result.layer] : await identityOf(result, mount.source, work));
  }
  return found;
}

/** Layers are known by their name, files of a client by their content. */
async function identityOf(
  { layer, files }: Pick<StepResult, 'layer' | 'files'>,
  source: string,
  { tools, signal }: StepWork,
): Promise<string> {
  if (files === undefined) return layer ?? 'nothing';
  const { directory: root, digests, ignore } = files;
  const tree = { root, digests, sources: [source || '/'], ignore, exclude: [] };
  const { hex } = await tools.deps.pool.run('build-digest', { trees: [tree], ignoresOwners: false }, { signal });
  return hex;
}
