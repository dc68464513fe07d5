/** A stage while it is built: the image that its next instruction begins with. */
import type { StageScope } from '../../build/dockerfile/scope.js';
import type { ImageHistory, ImageRuntimeConfig } from '../../ports/images.js';
import type { Digest } from '../../ports/storage.js';

export interface StageState {
  readonly config: ImageRuntimeConfig;
  readonly author: string;
  readonly architecture: string;
  readonly os: string;
  readonly variant: string | undefined;
  /** undefined: there are no files yet. */
  readonly topLayer: Digest | undefined;
  readonly diffIds: readonly Digest[];
  readonly history: readonly ImageHistory[];
  /** The image of the last step; undefined before the first one of a stage without a base. */
  readonly image: Digest | undefined;
  /** CMD was said in this stage, so ENTRYPOINT leaves it. */
  readonly hasOwnCmd: boolean;
}

/** A stage that is complete, for those that are based on it or take files from it. */
export interface BuiltStage {
  readonly state: StageState;
  readonly scope: StageScope;
}

/** Returns the command line of a shell form. */
export function shellOf(config: ImageRuntimeConfig): readonly string[] {
  return config.Shell?.length ? config.Shell : ['/bin/sh', '-c'];
}

/** Shows words as Go prints a list of quoted strings. */
export function quotedList(words: readonly string[]): string {
  return `[${words.map((word) => JSON.stringify(word)).join(' ')}]`;
}
