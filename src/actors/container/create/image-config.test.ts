import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerConfig } from '../../../ports/container.js';
import { mergeImageConfig } from './image-config.js';

const given = (config: Partial<ContainerConfig>): ContainerConfig =>
  ({
    Env: null,
    Cmd: null,
    Entrypoint: null,
    Volumes: null,
    Labels: {},
    User: '',
    WorkingDir: '',
    OnBuild: null,
    ...config,
  }) as ContainerConfig;

const image = {
  Entrypoint: ['/entry'],
  Cmd: ['serve'],
  Env: ['PATH=/bin', 'A=image'],
  User: 'web',
  WorkingDir: '/srv',
  Labels: { a: 'image', b: 'image' },
  ExposedPorts: { '80/tcp': {} },
};

test('command and entrypoint follow the rules of the Engine API', () => {
  const cases: [Partial<ContainerConfig>, string[]][] = [
    [{}, ['/entry', 'serve']],
    [{ Cmd: ['other'] }, ['/entry', 'other']],
    [{ Entrypoint: [] }, ['/entry', 'serve']],
    [{ Entrypoint: ['/mine'] }, ['/mine']],
    [{ Entrypoint: ['/mine'], Cmd: ['x'] }, ['/mine', 'x']],
    [{ Entrypoint: [''], Cmd: ['x'] }, ['x']],
    [{ Entrypoint: [''], Cmd: [''] }, ['']],
  ];
  for (const [config, argv] of cases) {
    const { path, args } = mergeImageConfig(given(config), image);
    assert.deepEqual([path, ...args], argv, JSON.stringify(config));
  }
  assert.throws(() => mergeImageConfig(given({}), {}), /no command specified/);
  assert.throws(() => mergeImageConfig(given({ Entrypoint: [''] }), image), /no command specified/);
});

test('the client wins, the image fills in', () => {
  const { config } = mergeImageConfig(
    given({ Env: ['A=mine', 'B'], Labels: { a: 'mine' }, User: 'root', ExposedPorts: { '81/tcp': {} } }),
    image,
  );
  assert.deepEqual(config.Env, ['A=mine', 'B', 'PATH=/bin']);
  assert.deepEqual(config.Labels, { a: 'mine', b: 'image' });
  assert.equal(config.User, 'root');
  assert.equal(config.WorkingDir, '/srv');
  assert.deepEqual(Object.keys(config.ExposedPorts ?? {}).toSorted(), ['80/tcp', '81/tcp']);
  const none = mergeImageConfig(given({ Cmd: ['x'], ExposedPorts: {} }), {});
  assert.ok(!('ExposedPorts' in none.config), 'an empty list of ports is no list');
});

test('a health check is merged field by field', () => {
  const { config } = mergeImageConfig(given({ Cmd: ['x'], Healthcheck: { Interval: 5e9, Retries: 0 } }), {
    Healthcheck: { Test: ['CMD', 'true'], Interval: 1e9, Retries: 7 },
  });
  assert.deepEqual(config.Healthcheck, { Test: ['CMD', 'true'], Interval: 5e9, Retries: 7 });
});
