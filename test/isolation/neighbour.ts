/** A test file that wants the same names and the same port as the poisonous one before it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { POISON_LINK, POISON_PORT } from './names.js';

test('this file passes', async () => {
  const cleanup = new Cleanup();
  try {
    const links = execFileSync('ip', ['-o', 'link', 'show'], { encoding: 'utf8' });
    assert.ok(!links.includes(POISON_LINK), links);
    assert.ok(!execFileSync('iptables-save', { encoding: 'utf8' }).includes('-j DROP'));
    const { engine, image } = await startEngineWithImage(cleanup, engined());
    await dockerOk(engine, ['run', '--rm', '-p', `${POISON_PORT}:80`, image, 'true']);
  } finally {
    await cleanup.run();
  }
});
