/** Most test files work with this: an engine that has an image. */
import { startSeededRegistry, type SeededRegistry } from './busybox-image.js';
import type { Cleanup } from './cleanup.js';
import { Engine, type EngineKind } from './engine.js';
import { kindUnderTest } from './engined.js';
import { pullOk } from './pulls.js';
import { SEEDED_IMAGE, withImage } from './seed.js';
import { isSharing, type Scene, shareEngine } from './shared-engine.js';
import { DEFAULT_STORE, testedStore } from './tested-store.js';

export interface EngineWithImage {
  readonly engine: Engine;
  /** The reference by which the engine knows the image. */
  readonly image: string;
}

export interface EngineWithRegistry extends EngineWithImage {
  /** Where it pulled the image from. */
  readonly registry: SeededRegistry;
}

/**
 * Starts the engine that the environment asks for unless `kind` says which; `cleanup` ends it and checks that nothing
 * is left.
 */
export async function startEngineWithImage(cleanup: Cleanup, kind?: EngineKind): Promise<EngineWithImage> {
  const start = (to: Cleanup): Promise<Scene> => startSeeded(to, kind ?? kindUnderTest());
  return mayShare(kind) ? shareEngine(cleanup, start) : start(cleanup);
}

/** Does the same for tests that need the registry, too, or what a pull leaves: digests, layers, progress. */
export async function startEngineWithRegistry(cleanup: Cleanup, kind?: EngineKind): Promise<EngineWithRegistry> {
  const start = (to: Cleanup): Promise<EngineWithRegistry> => startAndPull(to, kind ?? kindUnderTest());
  if (!mayShare(kind)) return start(cleanup);
  const { registry, ...rest } = await shareEngine(cleanup, start);
  if (registry === undefined) throw new Error('a file of this group has started an engine without a registry');
  return { ...rest, registry };
}

/** Does the same for tests that bring their images themselves. Where files share an engine, it has one more. */
export async function startEngine(cleanup: Cleanup, kind?: EngineKind): Promise<Engine> {
  if (mayShare(kind)) return (await startEngineWithImage(cleanup, kind)).engine;
  const engine = await Engine.start(kind ?? kindUnderTest());
  cleanup.add(() => engine.close());
  return engine;
}

function mayShare(kind: EngineKind | undefined): boolean {
  return isSharing() && (kind === undefined || kind.isDefault === true);
}

async function startSeeded(cleanup: Cleanup, kind: EngineKind): Promise<EngineWithImage> {
  // The files of a seed are those of the default storage driver.
  if (kind.name === 'dockerd' || testedStore() !== DEFAULT_STORE) return startAndPull(cleanup, kind);
  const engine = await Engine.start(await withImage(kind));
  cleanup.add(() => engine.close());
  return { engine, image: SEEDED_IMAGE };
}

async function startAndPull(cleanup: Cleanup, kind: EngineKind): Promise<EngineWithRegistry> {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  const engine = await Engine.start(kind);
  cleanup.add(() => engine.close());
  await pullOk(engine, registry.reference);
  return { engine, registry, image: registry.reference };
}
