/**
 * An engined that has an image from its first start: the files of one are made once for each build, by a pull, and
 * copied. That takes a tenth of the processor time of a registry and a pull.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startSeededRegistry } from './busybox-image.js';
import { Cleanup } from './cleanup.js';
import { Engine, type EngineKind } from './engine.js';
import { engined } from './engined.js';
import { callJson } from './http.js';
import { pullOk } from './pulls.js';
import { DEFAULT_STORE, testedStore } from './tested-store.js';

/** The name of the image: the one of busybox-image.ts, with a tag of no registry. */
export const SEEDED_IMAGE = 'test/busybox:1.0';
/** The parts of a data root that hold images. */
const PARTS = ['image', 'overlay2'];
/** This file is in dist/test/support. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const SEEDS = join(ROOT, 'node_modules/.cache/test-image');

/**
 * Returns the same kind of engined, whose data root has the image before its first start. With another store than the
 * one of the files (tested-store.ts) it is pulled after that.
 */
export async function withImage(kind: EngineKind): Promise<EngineKind> {
  if (testedStore() !== DEFAULT_STORE) return { ...kind, prepare: pullSeed };
  const seed = await ensureSeed();
  return {
    ...kind,
    command(dir, socketPath) {
      const data = join(dir, 'data');
      if (!existsSync(data)) copyParts(seed, data);
      return kind.command(dir, socketPath);
    },
  };
}

/** Makes the files unless they were made for this build before, and returns their directory. */
export async function ensureSeed(): Promise<string> {
  // The name of the program has a hash of its content.
  const program = readdirSync(join(ROOT, 'dist/bundle')).find((file) => /^engined-\w+\.cjs$/.test(file));
  if (program === undefined) throw new Error('dist/bundle has no program: run npm run build');
  const name = basename(program, '.cjs');
  const seed = join(SEEDS, name);
  if (existsSync(seed)) return seed;
  mkdirSync(SEEDS, { recursive: true });
  for (const other of readdirSync(SEEDS)) if (other.startsWith('engined-')) removeTree(join(SEEDS, other));
  const made = mkdtempSync(join(SEEDS, 'new-'));
  try {
    await fill(made);
    renameSync(made, seed);
  } catch (error) {
    removeTree(made);
    // Another process may have been faster.
    if (!existsSync(seed)) throw error;
  }
  return seed;
}

async function fill(seed: string): Promise<void> {
  const cleanup = new Cleanup();
  try {
    // Those who test another store do without the seed.
    const engine = await Engine.start(engined({ args: ['--storage-driver', DEFAULT_STORE] }));
    cleanup.add(() => engine.close());
    await pullSeed(engine);
    // The first container makes the layer between the image and all of them, which takes each daemon a thread.
    const { Id } = await callJson<{ Id: string }>(
      engine.socketPath,
      'POST',
      '/containers/create',
      { json: { Image: SEEDED_IMAGE, Cmd: ['true'] } },
      201,
    );
    await callJson(engine.socketPath, 'DELETE', `/containers/${Id}`);
    await engine.stop();
    copyParts(join(engine.dir, 'data'), seed);
    // Each daemon would sync the whole file system for the marks of layers that may not be on the disk yet.
    execFileSync('sync', ['--file-system', seed]);
    for (const part of ['unsynced', 'trash']) removeTree(join(seed, DEFAULT_STORE, part));
  } finally {
    await cleanup.run();
  }
}

async function pullSeed(engine: Engine): Promise<void> {
  const registry = await startSeededRegistry();
  try {
    await pullOk(engine, registry.reference);
    const image = `/images/${encodeURIComponent(registry.reference)}`;
    await callJson(engine.socketPath, 'POST', `${image}/tag?repo=test/busybox&tag=1.0`, {}, 201);
    await callJson(engine.socketPath, 'DELETE', image);
  } finally {
    await registry.stop();
  }
}

function copyParts(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  execFileSync('cp', ['-a', ...PARTS.map((part) => join(from, part)), to]);
}

function removeTree(path: string): void {
  rmSync(path, { recursive: true, force: true });
}
