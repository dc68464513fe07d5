/**
 * Clients that build what files describe, with the unmodified `docker buildx bake` and `docker compose up --build
 * --watch`. The same file passes against the original (ENGINE_UNDER_TEST=dockerd).
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins, composePlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { waitFor } from '../support/wait.js';

/** A machine that is busy with other tests takes a while to build an image again. */
const PATIENCE_MS = 120_000;
const isMissing = buildxPlugins() === undefined || composePlugins() === undefined;
const skip = isMissing && 'needs buildx and compose: node scripts/peers.mjs';
const directory = mkdtempSync(join(tmpdir(), 'build-clients-'));
const cleanup = new Cleanup();
let engine: Engine;
let client: Buildx;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  const { engine: started, image } = await startEngineWithImage(cleanup);
  engine = started;
  await engineOk(engine, ['tag', image, 'base:1']);
  client = new Buildx(join(directory, 'work'), engine.host, 'docker');
});
after(() => cleanup.run());

const printed = (image: string, ...command: string[]): Promise<string> =>
  engineOk(engine, ['run', '--rm', '--network=none', image, ...command]);

const BAKE = `
variable "TAG" { default = "dev" }
function "named" {
  params = [name]
  result = "\${name}:\${TAG}"
}
group "default" { targets = ["app", "tool"] }
target "_common" {
  args = { WHO = "common", KEPT = "yes" }
  labels = { "of" = "bake" }
}
target "low" {
  inherits = ["_common"]
  dockerfile-inline = "FROM base:1\\nRUN echo made-by-low >/low\\n"
}
target "app" {
  inherits = ["_common"]
  name = "app-\${part}"
  matrix = { part = ["one", "two"] }
  contexts = { low = "target:low", files = "./files" }
  args = { WHO = part }
  tags = [named("app-\${part}")]
}
target "tool" {
  inherits = ["_common"]
  target = "tool"
  contexts = { low = "target:low", files = "./files" }
  tags = [named("tool"), "tool:more"]
  output = ["type=docker"]
}
target "broken" { dockerfile-inline = "FROM base:1\\nRUN echo it-is-broken >&2; exit 3\\n" }
`;

describe('docker buildx bake', { skip }, () => {
  test('builds targets that are based on each other, and tells what it made', async () => {
    client.write('bake/docker-bake.hcl', BAKE);
    client.write('bake/files/f', 'of a context\n');
    client.write(
      'bake/Dockerfile',
      'FROM low AS app\nARG WHO KEPT\nCOPY --from=files f /f\nENV WHO=$WHO KEPT=$KEPT\nCMD ["cat", "/low", "/f"]\n' +
        'FROM low AS tool\nRUN echo tool >/tool\nCMD ["cat", "/tool"]\nFROM app\n',
    );
    const { stdout } = await client.ok(['buildx', 'bake', '--print'], { in: 'bake' });
    const { group } = JSON.parse(stdout) as { group: Record<string, { targets: string[] }> };
    assert.deepEqual(group['app']?.targets, ['app-one', 'app-two']);
    const args = ['buildx', 'bake', '--metadata-file', '../made.json', '--set', '*.labels.set=1'];
    await client.ok(args, { in: 'bake', env: { TAG: '7' } });
    for (const part of ['one', 'two']) {
      assert.equal(await printed(`app-${part}:7`), 'made-by-low\nof a context');
      assert.equal(await printed(`app-${part}:7`, 'sh', '-c', 'echo $WHO $KEPT'), `${part} yes`);
    }
    assert.equal(await printed('tool:7'), 'tool');
    assert.equal(await printed('tool:more'), 'tool');
    const labels = await engineOk(engine, ['inspect', '-f', '{{json .Config.Labels}}', 'app-one:7']);
    assert.deepEqual(JSON.parse(labels), { of: 'bake', set: '1', flavour: 'plain' });
    const made = JSON.parse(readFileSync(join(client.directory, 'made.json'), 'utf8')) as Record<string, Metadata>;
    const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'app-two:7']);
    assert.equal(made['app-two']?.['containerimage.digest'], id);
    const again = await client.ok(['buildx', 'bake', 'app-one'], { in: 'bake' });
    assert.match(again.stderr, /CACHED/);
    const broken = await client.run(['buildx', 'bake', 'broken'], { in: 'bake' });
    assert.equal(broken.status, 1);
    assert.match(broken.stderr, /it-is-broken[^]*did not complete successfully: exit code: 3/);
  });
});

interface Metadata {
  readonly 'containerimage.digest': string;
}

const PROJECT = `
name: watched
services:
  web:
    build: {context: ., args: {WHO: compose}, labels: {of: compose}}
    init: true
    stop_grace_period: 0s
    command: [sleep, '1000']
    network_mode: none
    develop:
      watch:
        - {action: sync, path: ./live, target: /live, ignore: [left-out]}
        - {action: rebuild, path: ./app}
  other:
    build: {context: ., target: low}
    init: true
    stop_grace_period: 0s
    command: [sleep, '1000']
    network_mode: none
`;

describe('docker compose up --build --watch', { skip }, () => {
  const said = async (service: string, ...command: string[]): Promise<string> => {
    const { status, stdout } = await attempt(engine, ['exec', `watched-${service}-1`, ...command]);
    return status === 0 ? stdout.trim() : '';
  };
  const settles = (what: string, ...command: string[]): Promise<unknown> =>
    waitFor(
      () => `${command.join(' ')} to say ${what}`,
      async () => (await said('web', ...command)) === what || undefined,
      PATIENCE_MS,
    );

  test('builds, brings changes in, and builds again', async () => {
    client.write('watch/compose.yaml', PROJECT);
    client.write(
      'watch/Dockerfile',
      'FROM base:1 AS low\nRUN echo low >/low\nFROM low\nARG WHO\nRUN echo "$WHO" >/who; mkdir /live\nCOPY app /app\n',
    );
    mkdirSync(join(client.directory, 'watch/live'));
    client.write('watch/app/version', 'one\n');
    const up = client.start(['compose', '--progress=plain', 'up', '--build', '--watch'], { in: 'watch' });
    try {
      await up.said(/Watch enabled/);
      await settles('one', 'cat', '/app/version');
      assert.equal(await said('web', 'cat', '/who', '/low'), 'compose\nlow');
      assert.equal(await said('other', 'cat', '/low'), 'low');
      const id = (): Promise<string> => engineOk(engine, ['inspect', '-f', '{{.Id}}', 'watched-web-1']);
      const first = await id();
      client.write('watch/live/left-out', 'x');
      client.write('watch/live/page', 'live\n');
      await settles('live', 'cat', '/live/page');
      assert.equal(await said('web', 'ls', '/live'), 'page');
      client.write('watch/app/version', 'two\n');
      await settles('two', 'cat', '/app/version');
      assert.notEqual(await id(), first);
      const image = await engineOk(engine, ['inspect', '-f', '{{.Config.Labels.of}}', 'watched-web']);
      assert.equal(image, 'compose');
    } finally {
      up.kill('SIGINT');
      await up.ended;
      await client.ok(['compose', '--progress=plain', 'down', '--rmi', 'all'], { in: 'watch' });
    }
    assert.equal(await engineOk(engine, ['ps', '-aq']), '');
    assert.equal(await engineOk(engine, ['images', '-q', 'watched-web']), '');
  });
});
