/** The version of the state on disk: what the program reads, what it leaves untouched, and what it notes. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { lstatSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';

const cleanup = new Cleanup();
after(() => cleanup.run());

/** Everything below a directory with its size and the times of its changes. */
function listing(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .map((name) => {
      const { size, mtimeMs, ctimeMs, ino } = lstatSync(join(dir, name));
      return `${name} ${ino} ${size} ${mtimeMs} ${ctimeMs}`;
    })
    .toSorted();
}

test('the state of a newer program is refused untouched; one that can be read is used as it is', async () => {
  const kind = engined();
  const engine = await Engine.start(kind);
  cleanup.add(() => engine.close());
  const data = join(engine.dir, 'data');
  const file = join(data, 'state.json');
  await engineOk(engine, ['volume', 'create', 'kept']);
  const own = readFileSync(file, 'utf8');
  const { state } = JSON.parse(own) as { state: number };
  assert.equal(await engine.stop(), 0);

  const commands = [
    kind.command(engine.dir, engine.socketPath),
    ...['fsck', 'migrate'].map((command) => {
      const [program = ''] = kind.command(engine.dir, engine.socketPath);
      return [program, command, ...(command === 'migrate' ? ['--to', 'btrfs'] : []), '--data-root', data];
    }),
  ];
  for (const [text, message] of [
    [
      `{"state":${state + 2},"readableFrom":${state + 1}}`,
      /is of a newer engined: it has version \d+.*Nothing was changed/,
    ],
    ['{"state":', /state\.json cannot be read: .*restore it, or delete it/],
    ['{"state":"1"}', /state\.json cannot be read: it has no versions/],
  ] as const) {
    writeFileSync(file, text);
    const before = listing(data);
    for (const [program = '', ...args] of commands) {
      const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' });
      assert.notEqual(status, 0, stdout + stderr);
      assert.match(stdout + stderr, message);
    }
    assert.deepEqual(listing(data), before);
  }

  // The next program has run here, and is taken back.
  const newer = `{"state":${state + 1},"readableFrom":${state}}`;
  writeFileSync(file, newer);
  await engine.start();
  assert.equal(await engineOk(engine, ['volume', 'ls', '-q']), 'kept');
  assert.equal(readFileSync(file, 'utf8'), newer);
  assert.equal(await engine.stop(), 0);

  // The first form of the state had no such file.
  rmSync(file);
  await engine.start();
  assert.equal(await engineOk(engine, ['volume', 'ls', '-q']), 'kept');
  assert.equal(readFileSync(file, 'utf8'), own);
});
