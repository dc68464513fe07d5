import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseConfig } from './config-document.js';

const parse = (config: unknown, others: object = {}): ReturnType<typeof parseConfig> =>
  parseConfig(Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: {}, config, ...others })));

test('members of another type are refused by name', () => {
  for (const [name, values] of Object.entries({
    User: [1, [], {}, true],
    Env: ['A=b', [1], { A: 'b' }],
    Cmd: [1, [null], {}],
    Entrypoint: [true, [[]]],
    OnBuild: [1, 'RUN x'],
    Volumes: [[], ['/x'], { '/x': 1 }, 'x'],
    ExposedPorts: [80, ['80/tcp'], { '80/tcp': 'x' }],
    Labels: [[], { a: 1 }, { a: {} }],
    Healthcheck: ['x', [], { Test: 'x' }, { Interval: '1s' }, { Retries: 1.5 }],
    StopSignal: [9],
    StopTimeout: ['9', 1.5],
    Tty: ['true'],
  }))
    for (const value of values)
      assert.throws(
        () => parse({ [name]: value }),
        { code: 'BAD_CONFIG', message: `invalid image configuration: config.${name} is of another type` },
        JSON.stringify(value),
      );
  for (const others of [{ os: 1 }, { created: 5 }, { config: [] }, { config: 'x' }, { history: {} }, { history: [1] }])
    assert.throws(() => parse({}, others), { code: 'BAD_CONFIG' }, JSON.stringify(others));
});

test('members may be absent, null or unknown, and a command a text', () => {
  const config = {
    User: null,
    Env: null,
    Labels: { a: null, constructor: 'x' },
    Volumes: { '/x': null, '/y': {} },
    Healthcheck: { Test: ['NONE'], Interval: 1e9 },
    Other: 1,
  };
  assert.deepEqual(parse(config, { history: [{ created_by: 'x', empty_layer: true }, {}], more: [] }).config, config);
  assert.deepEqual(parse({ Cmd: 'a', Entrypoint: 'b' }).config, { Cmd: ['a'], Entrypoint: ['b'] });
  assert.equal(parse(null).config, null);
});
