/** Most test files work with this: an engine that has pulled the image of a registry of its own. */
import { startSeededRegistry, type SeededRegistry } from './busybox-image.js';
import type { Cleanup } from './cleanup.js';
import { Engine, type EngineKind } from './engine.js';
import { startEngineUnderTest } from './engined.js';
import { pullOk } from './pulls.js';

export interface EngineWithImage {
  readonly engine: Engine;
  readonly registry: SeededRegistry;
  /** The reference by which the engine knows the image. */
  readonly image: string;
}

/**
 * Starts both, with the engine that the environment asks for unless `kind` says which; `cleanup` ends them and checks
 * that nothing is left.
 */
export async function startEngineWithImage(cleanup: Cleanup, kind?: EngineKind): Promise<EngineWithImage> {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  const engine = await (kind === undefined ? startEngineUnderTest() : Engine.start(kind));
  cleanup.add(() => engine.close());
  await pullOk(engine, registry.reference);
  return { engine, registry, image: registry.reference };
}
