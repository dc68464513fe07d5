/** A stage before it is built: its steps, and the configuration and history that its image will have. */
import type { ConfigInstruction } from '../config-steps.js';
import type { Instruction } from '../../../build/dockerfile/ast.js';
import { isEngineError } from '../../../errors/engine-error.js';
import { DEFAULT_PATH, type StageScope } from '../../../build/dockerfile/scope.js';
import type { Platform } from '../../../build/dockerfile/platform.js';
import type { ImageConfigDocument, ImageHistory } from '../../../ports/images.js';
import { configStep } from '../config-steps.js';
import type { StageState } from '../stage-state.js';
import { blamed } from './failure.js';
import type { GrowingInstruction } from './growing-config.js';
import { configText } from './history-text.js';
import type { PlannedStep } from './step.js';

/** An entry of the history. Those of this build get their times when it is done. */
export interface PlannedHistory extends ImageHistory {
  /** The step that makes the layer of this entry. */
  readonly step?: PlannedStep;
}

export interface StagePlan {
  readonly state: StageState;
  readonly scope: StageScope | undefined;
  /** The last step that makes files; undefined: there are none. */
  readonly last: PlannedStep | undefined;
  readonly history: readonly PlannedHistory[];
}

const COMMENT = 'buildkit.dockerfile.v0';
/** The comment of layers of which no history tells. */
export const EXPORTED = 'buildkit.exporter.image.v0';

const NO_FILES = { topLayer: undefined, diffIds: [], history: [], image: undefined, hasOwnCmd: false } as const;

export function scratchState({ os, architecture, variant }: Platform): StageState {
  return {
    ...NO_FILES,
    config: { Env: [`PATH=${DEFAULT_PATH}`], WorkingDir: '/' },
    author: '',
    variant: variant === '' ? undefined : variant,
    os,
    architecture,
  };
}

export function imageState(image: ImageConfigDocument): StageState {
  const { config = {}, author = '', os, architecture, variant } = image;
  const env = config.Env ?? [];
  const hasPath = env.some((entry) => entry.startsWith('PATH='));
  const Env = hasPath ? [...env] : [...env, `PATH=${DEFAULT_PATH}`];
  return { ...NO_FILES, config: { ...config, Env }, author, os, architecture, variant };
}

/** Returns the history of a base image; entries must be as many as layers. */
export function imageHistory({ history = [], rootfs }: ImageConfigDocument): PlannedHistory[] {
  const layers = history.filter((entry) => entry.empty_layer !== true).length;
  const missing = rootfs.diff_ids.length - layers;
  if (missing < 0) return history.map((entry) => ({ ...entry, empty_layer: true }));
  return [...history, ...Array.from({ length: missing }, () => ({ comment: EXPORTED }))];
}

export function layerEntry(text: string, step: PlannedStep): PlannedHistory {
  return { created_by: text, comment: COMMENT, step };
}

export function emptyEntry(text: string): PlannedHistory {
  return { created_by: text, comment: COMMENT, empty_layer: true };
}

/** Applies an instruction that changes the configuration only. @throws EngineError with its lines. */
export function configured(
  state: StageState,
  instruction: Exclude<ConfigInstruction, GrowingInstruction>,
): { readonly state: StageState; readonly entries: readonly PlannedHistory[] } {
  try {
    const { state: after } = configStep(state, instruction);
    const words = (instruction.kind === 'CMD' ? after.config.Cmd : after.config.Entrypoint) ?? [];
    const text = configText(instruction, words);
    const config = instruction.kind === 'CMD' ? { ...after.config, ArgsEscaped: true } : after.config;
    return { state: { ...after, config }, entries: text === '' ? [] : [emptyEntry(text)] };
  } catch (error) {
    throw isEngineError(error) ? blamed(error, { lines: instruction.lines }) : error;
  }
}

export function isConfig(instruction: Instruction): instruction is ConfigInstruction {
  const { kind } = instruction;
  return kind !== 'RUN' && kind !== 'COPY' && kind !== 'ADD' && kind !== 'WORKDIR';
}
