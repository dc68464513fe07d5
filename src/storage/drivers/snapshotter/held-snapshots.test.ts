import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Snapshots } from '../../../ports/snapshots.js';
import { HeldSnapshots } from './held-snapshots.js';

/** As containerd from 1.7 on: a lease also holds a name that it was refused. Answers come in the order of `delays`. */
class NewerSnapshots implements Snapshots {
  readonly snapshotter = 'overlayfs';
  readonly there = new Set<string>();
  readonly holds = new Set<string>();
  readonly delays: Promise<void>[] = [];

  async prepare(_lease: string, key: string): Promise<[] | undefined> {
    return (await this.#take(key)) ? [] : undefined;
  }

  commit(_lease: string, name: string): Promise<boolean> {
    return this.#take(name);
  }

  async letGo(_lease: string, names: readonly string[]): Promise<void> {
    for (const name of names) this.holds.delete(name);
  }

  async hold(_lease: string, names: readonly string[]): Promise<void> {
    for (const name of names) this.holds.add(name);
  }

  view = (): never => assert.fail('not asked for');
  mounts = this.view;
  names = this.view;
  makeLease = this.view;
  held = this.view;
  collect = this.view;

  async #take(name: string): Promise<boolean> {
    const isFree = !this.there.has(name);
    this.there.add(name);
    this.holds.add(name);
    await this.delays.shift();
    return isFree;
  }
}

test('a name that somebody else has is not held', async () => {
  const snapshots = new NewerSnapshots();
  snapshots.there.add('key').add('name');
  const held = new HeldSnapshots(snapshots, 'lease', []);
  const { key } = await held.prepare('key');
  const name = await held.commit('name', key);
  assert.match(key, /^key-/);
  assert.match(name, /^name-/);
  assert.deepEqual(snapshots.holds, new Set([key, name]));
});

test('a name that is ours stays held when it is wanted again, also at the same time', async () => {
  const snapshots = new NewerSnapshots();
  await snapshots.hold('lease', ['before']);
  snapshots.there.add('before').add('found');
  const held = new HeldSnapshots(snapshots, 'lease', ['before']);
  await held.hold(['found']);
  let answer = (): void => assert.fail('no request yet');
  snapshots.delays.push(new Promise((resolve) => (answer = resolve)));
  const both = [held.commit('same', 'a'), held.commit('same', 'b')];
  setImmediate(() => answer());
  const [first, second] = await Promise.all(both);
  assert.equal(first, 'same');
  const others = await Promise.all(['before', 'found'].map((name) => held.commit(name, 'c')));
  assert.deepEqual(snapshots.holds, new Set(['before', 'found', 'same', second, ...others]));
});

test('a name that was let go is not ours any more', async () => {
  const snapshots = new NewerSnapshots();
  const held = new HeldSnapshots(snapshots, 'lease', []);
  await held.commit('name', 'a');
  await held.letGo(['name']);
  const again = await held.commit('name', 'b');
  assert.deepEqual(snapshots.holds, new Set([again]));
});
