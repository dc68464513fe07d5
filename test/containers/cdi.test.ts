/** Devices by their CDI names, from specifications in directories of the host. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
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
    `cdiVersion: 0.7.0
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
  const bad = { late: ['0.6.0', { intelRdt: {} }], future: ['9.0.0', {}], odd: ['0.6.0', { env: 5 }] } as const;
  for (const [name, [cdiVersion, containerEdits]] of Object.entries(bad)) {
    const specification = { cdiVersion, kind: `example.com/${name}`, devices: [{ name: '0', containerEdits }] };
    await writeFile(join(dir, 'static', `${name}.json`), JSON.stringify(specification));
  }
  ({ engine, image } = await startEngineWithImage(
    cleanup,
    engined({ file: { 'cdi-spec-dirs': [join(dir, 'static'), join(dir, 'generated')] } }),
  ));
});
after(() => cleanup.run());

const run = (devices: readonly string[], script: string): Promise<string> =>
  engineOk(engine, ['run', '--rm', ...devices.flatMap((name) => ['--device', name]), image, 'sh', '-c', script]);

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
  [
    'more than the version of a specification has',
    'example.com/late=0',
    /unresolvable CDI devices example.com\/late=0 \(left out: .*late.json: the spec version must be at least v0.7.0/,
  ],
  ['a version that nobody knows', 'example.com/future=0', /future.json: invalid version "9.0.0"/],
  ['an edit of a wrong type', 'example.com/odd=0', /odd.json: device 0: env is of a wrong type/],
] as const) {
  test(`refused: ${what}`, async () => {
    const { status, stderr } = await attempt(engine, ['run', '--rm', '--device', device, image, 'true']);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
    assert.equal(await engineOk(engine, ['ps', '-aq']), '');
  });
}

/** The devices of a fake vendor of graphics processors: real nodes, each by its index and its UUID. */
function gpuSpecification(count: number): string {
  const nodes = Array.from({ length: count }, (_, index) => ({
    path: `/dev/fakegpu${index}`,
    hostPath: index % 2 === 0 ? '/dev/full' : '/dev/zero',
  }));
  const named = nodes.flatMap((node, index) =>
    [`${index}`, `GPU-uuid-${index}`].map((name) => ({ name, containerEdits: { deviceNodes: [node] } })),
  );
  // This one is not there yet: its numbers are those of /dev/null.
  const later = { path: '/dev/fakegpu-later', type: 'c', major: 1, minor: 3 };
  const whole = { name: 'all', containerEdits: { deviceNodes: [...nodes, later] } };
  return JSON.stringify({ cdiVersion: '0.6.0', kind: 'nvidia.com/gpu', devices: [...named, whole] });
}

test('graphics processors: none, all, by number, by index and by UUID, as specifications come and go', async () => {
  const gpus = (request: string): Promise<string> =>
    engineOk(engine, ['run', '--rm', '--gpus', request, image, 'sh', '-c', 'cd /dev; ls -d fakegpu*']);
  const refused = async (request: string): Promise<string> =>
    (await attempt(engine, ['run', '--rm', '--gpus', request, image, 'true'])).stderr;
  assert.match(
    await refused('all'),
    /could not select device driver "" with capabilities: \[\[gpu\]\]: no CDI specification of nvidia.com\/gpu or amd/,
  );
  await writeFile(join(dir, 'generated', 'gpus.json'), gpuSpecification(11));
  assert.equal((await gpus('all')).split('\n').length, 12);
  assert.equal(await gpus('3'), 'fakegpu0\nfakegpu1\nfakegpu2');
  assert.equal(await gpus('"device=10,GPU-uuid-3"'), 'fakegpu10\nfakegpu3');
  assert.match(await refused('12'), /12 devices were asked for, but the CDI specifications have 11 of nvidia.com\/gpu/);
  assert.match(await refused('device=77'), /unresolvable CDI devices nvidia.com\/gpu=77/);
  assert.equal(
    await run(['nvidia.com/gpu=all'], 'echo lost >/dev/fakegpu-later && stat -c %t:%T /dev/fakegpu-later'),
    '1:3',
  );
  const request = { Driver: 'amd', Count: -1, Capabilities: [['gpu']] };
  const made = await callJson<{ Id: string }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    { json: { Image: image, HostConfig: { DeviceRequests: [request] } } },
    201,
  );
  assert.match(
    (await docker(engine, ['start', made.Id])).stderr,
    /could not select device driver "amd" .*: no CDI specification of amd.com\/gpu in /,
  );
  await engineOk(engine, ['rm', made.Id]);
  await rm(join(dir, 'generated', 'gpus.json'));
  assert.match(await refused('1'), /no CDI specification/);
});

test('two specifications of equal precedence make a device ambiguous; a later directory decides', async () => {
  const specification = (value: string): string =>
    JSON.stringify({
      cdiVersion: '0.6.0',
      kind: 'example.com/twice',
      devices: [{ name: 'd', containerEdits: { env: [`DEVICE=${value}`] } }],
    });
  await writeFile(join(dir, 'static', 'one.json'), specification('one'));
  await writeFile(join(dir, 'static', 'two.json'), specification('two'));
  const { stderr } = await attempt(engine, ['run', '--rm', '--device', 'example.com/twice=d', image, 'true']);
  assert.match(stderr, /conflicting device example.com\/twice=d in .*\.json and .*\.json/);
  await writeFile(join(dir, 'generated', 'three.json'), specification('three'));
  assert.equal(await run(['example.com/twice=d'], 'echo $DEVICE'), 'three');
});

test('with the feature switched off there is no such driver', async () => {
  const file = { features: { cdi: false }, 'cdi-spec-dirs': [join(dir, 'static'), join(dir, 'generated')] };
  await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(file));
  await callJson(engine.socketPath, 'POST', '/engine/config/reload', {}, 200);
  const { stderr } = await attempt(engine, ['run', '--rm', '--device', 'example.com/full=0', image, 'true']);
  assert.match(stderr, /could not select device driver "cdi" with capabilities: \[\]/);
});
