/** Files that ADD fetches from an address. */
import type { AddInstruction } from '../../../build/dockerfile/ast.js';
import { notImplemented } from '../../../errors/engine-error.js';
import { newStep, type PlannedStep } from './step.js';

/** Returns whether a source of ADD is an address. */
export function isRemote(source: string): boolean {
  return /^(?:https?|git|ssh):\/\/|^git@/.test(source);
}

/** Returns the step that fetches the files. */
export function remoteStep(url: string, { lines, checksum, keepGitDir }: AddInstruction): PlannedStep {
  return newStep({
    name: url,
    operation: {
      identity: ['remote', url, checksum, keepGitDir ?? null],
      perform: () => Promise.reject(notImplemented('ADD of an address is not supported by this builder yet')),
    },
    parent: undefined,
    sources: [],
    lines,
    isFresh: false,
  });
}
