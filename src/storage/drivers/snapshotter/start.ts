/**
 * The start of a store of snapshots: which lease it has, of which form its snapshots are, and whether the supervisor
 * still has them. Nothing is taken for lost while it may only be that another supervisor was asked.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, unavailable } from '../../../errors/engine-error.js';
import type { SnapshotMount, Snapshots } from '../../../ports/snapshots.js';
import { syncDirectory } from '../../../sys/files/durable-file.js';
import type { Layout } from '../../layers/layout.js';
import { randomName } from '../../random-name.js';
import { refuseCopy } from './copies.js';
import { filesOf, type FormName, formOf } from './form.js';
import { HeldSnapshots } from './held-snapshots.js';
import {
  BASE,
  FILES_LINK,
  FORM_LINK,
  LEASE_LINK,
  ROOT_LINK,
  setText,
  SNAPSHOT_LINK,
  SNAPSHOTTER_LINK,
  textOf,
} from './places.js';

export interface StartedStore {
  readonly held: HeldSnapshots;
  readonly form: FormName;
  readonly repaired: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * @throws EngineError unavailable when the supervisor does not know the lease of a store that has data, or has no
 * such snapshotter, or one of another form; also for a copy of a data root that is served by the same supervisor.
 */
export async function startStore(layout: Layout, snapshots: Snapshots): Promise<StartedStore> {
  const { lease, holds } = await findLease(layout, snapshots);
  const held = new HeldSnapshots(snapshots, lease, holds);
  const there = await snapshots.names();
  await refuseCopy(layout.root, held, there);
  const base = join(layout.root, BASE);
  if (!there.has(textOf(base, SNAPSHOT_LINK) ?? '')) await makeBase(layout, held);
  if (textOf(layout.root, SNAPSHOTTER_LINK) === undefined)
    await symlink(snapshots.snapshotter, join(layout.root, SNAPSHOTTER_LINK));
  const form = textOf(base, FORM_LINK) as FormName;
  const isMoved = textOf(layout.root, ROOT_LINK) !== layout.root;
  await renewPath(base, held, { isActive: false, isMoved });
  const { wanted, repaired, warnings } = await compare(layout, held, there, isMoved);
  if (isMoved) await setText(layout.root, ROOT_LINK, layout.root);
  const orphans = holds.filter((name) => !wanted.has(name));
  try {
    if (orphans.length > 0) {
      await held.letGo(orphans);
      await held.collect();
      repaired.push(...orphans.map((name) => `snapshot ${name}`));
    }
  } catch (error) {
    // A full disk may have no room for that either; the daemon must start all the same.
    warnings.push(`snapshots that nothing needs stay until the next start: ${messageOf(error)}`);
  }
  const isHeld = new Set(holds);
  await held.hold([...wanted].filter((name) => there.has(name) && !isHeld.has(name)));
  return { held, form, repaired, warnings };
}

async function findLease(
  layout: Layout,
  snapshots: Snapshots,
): Promise<{ readonly lease: string; readonly holds: readonly string[] }> {
  const known = textOf(layout.root, LEASE_LINK);
  const holds = known === undefined ? undefined : await snapshots.held(known);
  if (known !== undefined && holds !== undefined) return { lease: known, holds };
  const shelves = await Promise.all([layout.layers, layout.writable].map((shelf) => readdir(shelf)));
  if (known !== undefined && shelves.flat().length > 0)
    throw unavailable(
      `the supervisor does not know the lease ${known}, which holds the layers of ${layout.root}: name the ` +
        'supervisor and the namespace that have them (supervisor, supervisor-namespace), or delete that directory to ' +
        'give up its images and containers',
      { code: 'LEASE_UNKNOWN' },
    );
  const lease = known ?? `engined-${randomName()}`;
  if (known === undefined) {
    await symlink(lease, join(layout.root, LEASE_LINK));
    await syncDirectory(layout.root);
  }
  await snapshots.makeLease(lease);
  return { lease, holds: [] };
}

/** Makes the snapshot without files, and one on it, whose mounts tell the form. */
async function makeBase(layout: Layout, held: HeldSnapshots): Promise<void> {
  const { snapshotter } = held.snapshots;
  const staging = layout.newStaging();
  const made: string[] = [];
  try {
    const { key, mounts } = await held.prepare(`base-${randomName()}`);
    made.push(key);
    const files = filesOf(mounts);
    const name = await held.commit(key.replace('base', 'empty'), key);
    made.push(name);
    const above = await held.prepare(`base-${randomName()}`, name);
    made.push(above.key);
    const form = formOf(above.mounts);
    if (form === undefined || files === undefined || !existsSync(files))
      throw unavailable(`storage driver ${snapshotter}: ${otherForm(snapshotter, above.mounts)}`, {
        code: 'SNAPSHOTTER_FORM',
      });
    await mkdir(staging, { mode: 0o710 });
    for (const [link, text] of [
      [SNAPSHOT_LINK, name],
      [FILES_LINK, files],
      [FORM_LINK, form],
    ] as const)
      await symlink(text, join(staging, link));
    await rm(join(layout.root, BASE), { recursive: true, force: true });
    await rename(staging, join(layout.root, BASE));
    made.splice(made.indexOf(name), 1);
  } finally {
    await held.letGo(made);
    await rm(staging, { recursive: true, force: true });
    layout.leaveStaging(staging);
  }
}

function otherForm(snapshotter: string, mounts: readonly SnapshotMount[]): string {
  const types = mounts.map(({ type }) => type).join(', ');
  return (
    `the snapshotter ${snapshotter} hands out mounts of type ${types}; the engine needs directories on this host: ` +
    'use one such as overlayfs or native, or leave the feature supervisor-snapshotter out and use a storage driver'
  );
}

/** Finds out which snapshots the directories of the store name, and puts aside layers whose snapshot is gone. */
async function compare(
  layout: Layout,
  held: HeldSnapshots,
  there: ReadonlySet<string>,
  isMoved: boolean,
): Promise<{ readonly wanted: ReadonlySet<string>; readonly repaired: string[]; readonly warnings: string[] }> {
  const wanted = new Set([textOf(join(layout.root, BASE), SNAPSHOT_LINK) ?? '']);
  const repaired: string[] = [];
  const warnings: string[] = [];
  for (const shelf of [layout.layers, layout.writable, layout.staging, layout.trash]) {
    for (const entry of await readdir(shelf)) {
      const directory = join(shelf, entry);
      const name = textOf(directory, SNAPSHOT_LINK);
      if (name !== undefined) wanted.add(name);
      const isHere = name !== undefined && there.has(name);
      if (isHere && (shelf === layout.layers || shelf === layout.writable))
        await renewPath(directory, held, { isActive: shelf === layout.writable, isMoved });
      else if (shelf === layout.layers) {
        await rename(directory, join(layout.trash, randomName()));
        repaired.push(`layer ${entry}, whose snapshot ${name ?? ''} was removed from the supervisor`);
      } else if (shelf === layout.writable && name !== undefined)
        warnings.push(`the snapshot ${name} of ${entry} was removed from the supervisor: remove the container`);
      // A new layer may get the name before this is deleted.
      else if (!isHere && name !== undefined) await rm(join(directory, SNAPSHOT_LINK));
    }
  }
  return { wanted, repaired, warnings };
}

/** Asks the supervisor again where the files of a snapshot are, if they may not be where they were. */
async function renewPath(
  directory: string,
  held: HeldSnapshots,
  { isActive, isMoved }: { readonly isActive: boolean; readonly isMoved: boolean },
): Promise<void> {
  const before = textOf(directory, FILES_LINK);
  const name = textOf(directory, SNAPSHOT_LINK) ?? '';
  // After a copy the files of the first data root may still be there.
  if (!isMoved && before !== undefined && existsSync(before)) return;
  const files = filesOf(await (isActive ? held.mounts(name) : held.look(name)));
  if (files !== undefined && files !== before) await setText(directory, FILES_LINK, files);
}
