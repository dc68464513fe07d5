import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parsePluginConfig } from './plugin-config.js';
import { checkGranted, privilegesOf } from './privileges.js';

const config = parsePluginConfig(
  Buffer.from(
    JSON.stringify({
      interface: { types: ['docker.volumedriver/1.0'], socket: 'a.sock' },
      entrypoint: ['/a'],
      network: { type: 'bridge' },
      mounts: [
        { source: '/data', destination: '/data', type: 'bind', options: ['rbind'] },
        { source: null, destination: '/chosen', type: 'bind' },
        { source: 'overlay', destination: '/all', type: 'overlay', options: ['lowerdir=/:/tmp'] },
      ],
    }),
  ),
);
const mount = (...Value: string[]) => ({ Name: 'mount', Description: 'host path to mount', Value });

test('who grants a mount sees what it shows of the host, which an overlay has in its options', () => {
  const asked = [mount('/data'), mount('overlay', 'type=overlay', 'option=lowerdir=/:/tmp')];
  assert.deepEqual(privilegesOf(config), asked);
  checkGranted(config, asked.toReversed());
  for (const granted of [[mount('/data'), mount('overlay')], [mount('/data')], []])
    assert.throws(() => checkGranted(config, granted), { message: 'incorrect privileges' });
});

test('a configuration with more in it than any plugin has is refused before it is parsed', () => {
  const text = `{"env":[${'{},'.repeat(100_001)}{}]}`;
  assert.throws(() => parsePluginConfig(Buffer.from(text)), /failed to parse config: .*more than 200000 values/);
});
