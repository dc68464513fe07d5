/** A compose project with the unmodified docker-compose of Debian: networks, names, scaling, recreation. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { DebianCompose } from '../support/debian-compose.js';
import { dockerCli } from '../support/dockerd.js';
import { askEcho, startEchoServer } from '../support/echo-server.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const directory = mkdtempSync(join(tmpdir(), 'compose-'));
const cleanup = new Cleanup();
let image: string;
let engine: Engine;
let debian: DebianCompose;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
  // For `exec` it runs the CLI.
  const PATH = `${dirname(dockerCli())}:${process.env['PATH'] ?? ''}`;
  const env = { ...process.env, PATH, DOCKER_HOST: engine.host, COMPOSE_HTTP_TIMEOUT: '120' };
  debian = new DebianCompose({ cwd: directory, env });
  cleanup.add(() => debian.stop());
});
after(() => cleanup.run());

const compose = (...args: readonly string[]): Promise<string> => debian.run('--project-name', 'shop', ...args);

function project(command: string): void {
  writeFileSync(
    join(directory, 'docker-compose.yml'),
    `version: '2.4'
services:
  web:
    image: ${image}
    stop_grace_period: 0s
    command: ${command}
    depends_on: [api]
    ports: ['127.0.0.1::80']
    networks:
      front: {aliases: [www]}
      back: {}
  api:
    image: ${image}
    stop_grace_period: 0s
    command: sleep 600
    depends_on: [db]
    networks: [back]
    links: ['db:store']
  db:
    image: ${image}
    stop_grace_period: 0s
    command: sleep 600
    networks:
      back: {ipv4_address: 10.217.0.50}
networks:
  front:
    driver_opts: {com.docker.network.driver.mtu: '1400'}
  back:
    internal: true
    ipam: {config: [{subnet: 10.217.0.0/24}]}
`,
  );
}

const idOf = (service: string): Promise<string> =>
  engineOk(engine, ['ps', '-q', '--no-trunc', '-f', `label=com.docker.compose.service=${service}`]);
const inside = async (service: string, ...command: readonly string[]): Promise<string> =>
  engineOk(engine, ['exec', await idOf(service), ...command]);

test('a project of three services comes up, is scaled, recreated and taken down', async () => {
  project('sleep 600');
  await compose('up', '-d');
  assert.deepEqual(
    (
      await engineOk(engine, [
        'network',
        'ls',
        '--filter',
        'label=com.docker.compose.project=shop',
        '--format',
        '{{.Name}}',
      ])
    )
      .split('\n')
      .sort(),
    ['shop_back', 'shop_front'],
  );
  assert.match(await inside('web', 'nslookup', 'db', '127.0.0.11'), /10\.217\.0\.50/);
  assert.match(await inside('api', 'nslookup', 'store', '127.0.0.11'), /10\.217\.0\.50/);
  assert.match(await inside('api', 'ping', '-c', '2', '-W', '2', 'web'), /[12] packets received/);
  assert.match(await inside('web', 'ip', 'link'), /mtu 1400/);
  // The internal network is no way out, so the port is published over the other one.
  const published = Number(/:(\d+)/.exec(await compose('port', 'web', '80'))?.[1]);
  const web = await idOf('web');
  const stop = await startEchoServer(
    await engineOk(engine, ['inspect', '-f', '{{.NetworkSettings.SandboxKey}}', web]),
    [80],
    [],
  );
  try {
    assert.match(
      (await askEcho(undefined, [{ protocol: 'tcp', host: '127.0.0.1', port: published }]))[0] ?? '',
      /^80 /,
    );
  } finally {
    await stop();
  }

  await compose('up', '-d', '--scale', 'api=3');
  const lookup = await inside('web', 'nslookup', 'api', '127.0.0.11');
  assert.equal(new Set(lookup.match(/10\.217\.0\.\d+/g)).size, 3);
  await compose('up', '-d', '--scale', 'api=1');
  assert.equal(new Set((await inside('web', 'nslookup', 'api', '127.0.0.11')).match(/10\.217\.0\.\d+/g)).size, 1);

  // Unchanged services stay, a changed one is made anew and keeps its names.
  const db = await idOf('db');
  project('sleep 700');
  await compose('up', '-d');
  assert.equal(await idOf('db'), db);
  assert.notEqual(await idOf('web'), web);
  await compose('up', '-d', '--force-recreate');
  assert.notEqual(await idOf('db'), db);
  assert.match(await inside('web', 'nslookup', 'db', '127.0.0.11'), /10\.217\.0\.50/);

  await compose('down', '-t', '0');
  assert.equal(await engineOk(engine, ['ps', '-aq']), '');
  assert.equal(await engineOk(engine, ['network', 'ls', '--filter', 'type=custom', '-q']), '');
});

test('a service is built with arguments, up to a target, and again when a file changes', async () => {
  mkdirSync(join(directory, 'built'));
  const file = (name: string, content: string): void => writeFileSync(join(directory, 'built', name), content);
  file('Dockerfile', `FROM ${image} AS base\nARG WHO\nCOPY f /f\nRUN echo "$WHO" >> /f\nFROM base\nRUN exit 1\n`);
  file('.dockerignore', 'left-out\n');
  const build = '{context: built, target: base, args: {WHO: you}, labels: {made: here}}';
  const service = `{image: shop/made, build: ${build}, command: cat /f}`;
  writeFileSync(join(directory, 'docker-compose.yml'), `version: '2.4'\nservices:\n  made: ${service}\n`);
  for (const content of ['first for ', 'second for ']) {
    file('f', content);
    assert.match(await compose('up', '--build', '--no-color'), new RegExp(`${content}you\n`));
  }
  assert.match(await compose('build'), /Using cache|CACHED/);
  const label = '{{.Config.Labels.made}}';
  assert.equal(await engineOk(engine, ['image', 'inspect', '-f', label, 'shop/made']), 'here');
  await compose('down', '-t', '0', '--rmi', 'all');
  assert.equal(await engineOk(engine, ['images', '-q', 'shop/made']), '');
});
