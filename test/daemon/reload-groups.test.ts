/** A reload of a configuration that names a group which somebody else than the machine's files has to know. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call } from '../support/http.js';
import { reloadsOf } from '../support/reloads.js';
import { waitFor } from '../support/wait.js';

test('a directory service that is slow to know a group holds up its reload, and nobody else', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'engined-getent-'));
  const [asked, answer] = [join(dir, 'asked'), join(dir, 'answer')];
  // It stands for the directory: what is in the files of the machine is not asked for here.
  const script = [
    '#!/bin/sh',
    '[ "$3" = remote ] || exit 2',
    `touch ${asked}`,
    `until [ -e ${answer} ]; do sleep 0.05; done`,
    'echo "remote:*:70001:"',
  ];
  await writeFile(join(dir, 'getent'), script.join('\n'), { mode: 0o755 });
  const other = await Engine.start(engined({ env: { PATH: `${dir}:${process.env['PATH'] ?? ''}` } }));
  const of = reloadsOf(() => other);
  try {
    const reloading = of.reload({ group: 'remote', labels: ['a=1'] });
    await waitFor('the question', () => existsSync(asked));
    assert.equal((await call(other.socketPath, 'GET', '/_ping')).text, 'OK');
    assert.deepEqual((await of.info()).Labels, []);
    // The next one waits for its turn.
    const next = of.reload({ group: 'remote', labels: ['a=2'] });
    await writeFile(answer, '');
    assert.deepEqual([(await reloading).ok, (await next).ok], [true, true]);
    assert.deepEqual((await of.info()).Labels, ['a=2']);
    const unknown = await of.reload({ group: 'nobody-has-this', labels: ['a=3'] });
    assert.equal(unknown.ok, false);
    assert.match(unknown.message, /group nobody-has-this not found \(group at line 1, column \d+\)/);
    assert.deepEqual((await of.info()).Labels, ['a=2']);
  } finally {
    await other.close();
    await rm(dir, { recursive: true });
  }
});
