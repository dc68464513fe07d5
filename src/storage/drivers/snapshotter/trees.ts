/** Snapshots that are whole trees in directories, as those of the snapshotter `native`. */
import { internal } from '../../../errors/engine-error.js';
import type { SnapshotMount } from '../../../ports/snapshots.js';
import { bindReadOnly, mountFileSystem } from '../../../sys/mount/mount.js';
import type { WorkerPool } from '../../../workers/pool.js';
import { filesOf, type NewContainer, type NewLayer, type SnapshotForm } from './form.js';

// linux/mount.h
const MS_BIND = 0x1000;

export class TreesForm implements SnapshotForm {
  constructor(private readonly workers: WorkerPool) {}

  async fillLayer({ difference, mounts, below: [original] }: NewLayer): Promise<void> {
    const tree = treeOf(mounts);
    await this.workers.run('fill-copy', { tree, original, owner: undefined, differences: [difference] });
    await this.workers.run('remove-trees', { paths: [difference] });
  }

  directories([top]: readonly string[]): string[] {
    return top === undefined ? [] : [top];
  }

  async fillContainer({ mounts, differences, image, owner }: NewContainer): Promise<void> {
    const tree = treeOf(mounts);
    const ownerOfRoot = image === undefined ? owner : undefined;
    await this.workers.run('fill-copy', { tree, original: image, owner: ownerOfRoot, differences });
  }

  async mount(mounts: readonly SnapshotMount[], _below: readonly string[], at: string): Promise<void> {
    await mountFileSystem(treeOf(mounts), at, 'none', '', MS_BIND);
  }

  async mountImage([tree]: readonly string[], at: string): Promise<void> {
    if (tree !== undefined) await bindReadOnly(tree, at);
  }

  async difference(tree: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string> {
    await this.workers.run('compare-trees', { tree, below, difference: scratch, isShape });
    return scratch;
  }

  close(): void {}
}

function treeOf(mounts: readonly SnapshotMount[]): string {
  const tree = filesOf(mounts);
  if (tree === undefined) throw internal('the snapshotter hands out other mounts than it did');
  return tree;
}
