/** Where a layer is until it is whole. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { StorageDriver } from '../drivers/driver.js';
import { DIFFERENCE } from './layout.js';

export interface StagePlace {
  readonly directory: string;
  /** In the directory, where the driver wants it. */
  readonly diffDir: string;
}

/** @param below directories of the layers below it; empty: not known yet. */
export async function makeStage(
  driver: StorageDriver,
  directory: string,
  below: readonly string[],
): Promise<StagePlace> {
  const at = join(directory, DIFFERENCE);
  await mkdir(directory, { mode: 0o710 });
  if (driver.stage) return { directory, diffDir: await driver.stage(at, below) };
  await mkdir(at, { mode: 0o755 });
  return { directory, diffDir: at };
}
