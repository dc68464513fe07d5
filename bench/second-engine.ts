/**
 * Another engine of the same kind beside a measured one, for measures of what only one of both has. It has a network
 * namespace of its own, as two dockerds would share bridge and firewall rules; its processor time is not counted.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Cleanup } from '../test/support/cleanup.js';
import { dockerOk } from '../test/support/cli.js';
import { Engine, type EngineKind } from '../test/support/engine.js';

const ENTER = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];

function inOwnNetwork(kind: EngineKind): EngineKind {
  return { ...kind, command: (...places) => [...ENTER, ...kind.command(...places)] };
}

/** Resolves with the engine when it has the image of the first one, whose registry it does not reach. */
export async function startSecond(first: Engine, image: string, kind: EngineKind, cleanup: Cleanup): Promise<Engine> {
  const second = await Engine.start(inOwnNetwork(kind));
  cleanup.add(() => second.discard());
  const archive = join(second.dir, 'image.tar');
  await dockerOk(first, ['save', '-o', archive, image]);
  await dockerOk(second, ['load', '-q', '-i', archive]);
  await rm(archive);
  return second;
}
