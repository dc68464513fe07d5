/** Faults of a RUN that are known before anything of the build runs. */
import type { RunInstruction } from '../../../build/dockerfile/ast.js';
import type { RunSettings } from '../../../ports/build.js';
import { requireEntitled } from './entitlements.js';
import { mountTarget } from './step-mounts.js';

/** @throws EngineError for what the build was not granted, and for places where nothing can be mounted. */
export function checkRun(instruction: RunInstruction, settings: RunSettings, workingDir: string): void {
  requireEntitled(instruction, settings);
  for (const mount of instruction.mounts)
    if (mount.type !== 'secret' && mount.type !== 'ssh') mountTarget(mount, workingDir);
}
