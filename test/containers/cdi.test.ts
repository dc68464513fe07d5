/** Devices by their CDI names, from specifications in directories of the host. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

const cleanup = new Cleanup();
let dir: string;
let engine: Engine;
let image: string;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-cdi-'));
  cleanup.add(() => rm(dir, { recursive: true, force: true }));
  await Promise.all(['static', 'generated', 'shared'].map((name) => mkdir(join(dir, name))));
  await writeFile(join(dir, 'shared', 'driver.txt'), 'driver 1\n');
  await writeFile(
    join(dir, 'static', 'example.json'),
    JSON.stringify({
      cdiVersion: '0.6.0',
      kind: 'example.com/full',
      containerEdits: {
        env: ['ALL=yes'],
        mounts: [{ hostPath: join(dir, 'shared'), containerPath: '/opt/driver', options: ['rbind', 'ro'] }],
      },
      devices: [
        {
          name: '0',
          containerEdits: {
            env: ['DEVICE=static'],
            deviceNodes: [{ path: '/dev/example0', hostPath: '/dev/full', permissions: 'rw' }],
          },
        },
        { name: 'gone', containerEdits: { deviceNodes: [{ path: '/dev/nothing-is-here' }] } },
      ],
    }),
  );
  await writeFile(
    join(dir, 'generated', 'example.yaml'),
    `cdiVersion: 0.6.0
kind: example.com/hooked
devices:
  - name: all
    containerEdits:
      env: [DEVICE=hooked]
      additionalGids: [4242]
      hooks:
        - hookName: createContainer
          path: /bin/sh
          args: [sh, -c, "cat > ${join(dir, 'hook-state')}"]
`,
  );
  await writeFile(join(dir, 'generated', 'broken.yaml'), 'kind: [\n');
  ({ engine, image } = await startEngineWithImage(
    cleanup,
    engined({ file: { 'cdi-spec-dirs': [join(dir, 'static'), join(dir, 'generated')] } }),
  ));
});
after(() => cleanup.run());

const run = (devices: readonly string[], script: string): Promise<string> =>
  dockerOk(engine, ['run', '--rm', ...devices.flatMap((name) => ['--device', name]), image, 'sh', '-c', script]);

test('info lists the directories', async () => {
  assert.deepEqual((await callJson<{ CDISpecDirs: string[] }>(engine.socketPath, 'GET', '/info')).CDISpecDirs, [
    join(dir, 'static'),
    join(dir, 'generated'),
  ]);
});

test('nodes, environment and mounts of a device', async () => {
  const output = await run(
    ['example.com/full=0'],
    'echo $ALL $DEVICE; cat /opt/driver/driver.txt; touch /opt/driver/x 2>&1; { echo x > /dev/example0; } 2>&1; true',
  );
  assert.match(output, /^yes static\ndriver 1\n.*Read-only file system\n.*No space left on device/s);
});

test('hooks and groups; several devices at once', async () => {
  assert.equal(
    await run(
      ['example.com/full=0', 'example.com/hooked=all'],
      'echo $DEVICE; id -G; test -c /dev/example0 && echo node',
    ),
    `hooked\n${await run([], 'id -G')} 4242\nnode`,
  );
  const state = JSON.parse(await readFile(join(dir, 'hook-state'), 'utf8')) as { ociVersion: string; bundle: string };
  assert.ok(state.bundle.startsWith(engine.dir));
});

for (const [what, device, message] of [
  [
    'a device of no specification',
    'example.com/full=7',
    /CDI device injection failed: unresolvable CDI devices example.com\/full=7 \(left out: .*broken.yaml/,
  ],
  [
    'a node that the host does not have',
    'example.com/full=gone',
    /CDI device injection failed: device node \/dev\/nothing-is-here/,
  ],
] as const) {
  test(`refused: ${what}`, async () => {
    const { status, stderr } = await docker(engine, ['run', '--rm', '--device', device, image, 'true']);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
    assert.equal(await dockerOk(engine, ['ps', '-aq']), '');
  });
}

test('two specifications of equal precedence make a device ambiguous; a later directory decides', async () => {
  const specification = (value: string): string =>
    JSON.stringify({
      cdiVersion: '0.6.0',
      kind: 'example.com/twice',
      devices: [{ name: 'd', containerEdits: { env: [`DEVICE=${value}`] } }],
    });
  await writeFile(join(dir, 'static', 'one.json'), specification('one'));
  await writeFile(join(dir, 'static', 'two.json'), specification('two'));
  const { stderr } = await docker(engine, ['run', '--rm', '--device', 'example.com/twice=d', image, 'true']);
  assert.match(stderr, /conflicting device example.com\/twice=d in .*\.json and .*\.json/);
  await writeFile(join(dir, 'generated', 'three.json'), specification('three'));
  assert.equal(await run(['example.com/twice=d'], 'echo $DEVICE'), 'three');
});

test('with the feature switched off there is no such driver', async () => {
  const file = { features: { cdi: false }, 'cdi-spec-dirs': [join(dir, 'static'), join(dir, 'generated')] };
  await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(file));
  await callJson(engine.socketPath, 'POST', '/engine/config/reload', {}, 200);
  const { stderr } = await docker(engine, ['run', '--rm', '--device', 'example.com/full=0', image, 'true']);
  assert.match(stderr, /could not select device driver "cdi" with capabilities: \[\]/);
});
