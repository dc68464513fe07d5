/** testcontainers, unmodified: what test suites of others do all day. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import type * as Testcontainers from 'testcontainers';
import { Cleanup } from '../support/cleanup.js';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let library: typeof Testcontainers;

before(async () => {
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  engine = await Engine.start(engined());
  cleanup.add(() => engine.close());
  // It reads them when it is loaded. Its reaper is an image of a registry that tests cannot reach.
  process.env['DOCKER_HOST'] = engine.host;
  process.env['TESTCONTAINERS_RYUK_DISABLED'] = 'true';
  library = await import('testcontainers');
});
after(() => cleanup.run());

/** Waits in a container until a program there listens, so that a line which follows says so. */
const isListening = (port: number): string =>
  `until grep -q ":${port.toString(16).toUpperCase()} " /proc/net/tcp*; do :; done`;

const containersOf = (): Promise<unknown[]> => callJson(engine.socketPath, 'GET', '/containers/json?all=1');

test('an image is pulled; the container is ready when its port and its log say so; nothing is left', async () => {
  const container = await new library.GenericContainer(registry.reference)
    .withCommand(['sh', '-c', 'mkdir /www; echo hello > /www/index.html; echo serving; exec httpd -f -p 8080 -h /www'])
    .withExposedPorts(8080)
    .withEnvironment({ COLOUR: 'green' })
    .withLabels({ 'test.kind': 'generic' })
    .withWaitStrategy(library.Wait.forAll([library.Wait.forLogMessage('serving'), library.Wait.forListeningPorts()]))
    .start();
  const response = await fetch(`http://${container.getHost()}:${container.getMappedPort(8080)}/`);
  assert.equal(await response.text(), 'hello\n');
  const { output, stderr, exitCode } = await container.exec(['sh', '-c', 'echo $COLOUR; echo oops >&2; exit 3']);
  assert.deepEqual([output.split('\n').sort(), stderr, exitCode], [['', 'green', 'oops'], 'oops\n', 3]);
  await container.restart();
  assert.equal(
    await (await fetch(`http://${container.getHost()}:${container.getMappedPort(8080)}/`)).text(),
    'hello\n',
  );
  await container.stop();
  assert.deepEqual(await containersOf(), []);
});

test('files are copied in before the start and while it runs, and out again', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'testcontainers-'));
  try {
    await writeFile(join(dir, 'given.txt'), 'from a file\n');
    const container = await new library.GenericContainer(registry.reference)
      .withCommand(['sh', '-c', 'cat /in/given.txt /in/content.txt; sleep 100'])
      .withCopyFilesToContainer([{ source: join(dir, 'given.txt'), target: '/in/given.txt' }])
      .withCopyContentToContainer([{ content: 'from memory\n', target: '/in/content.txt', mode: 0o640 }])
      .withWaitStrategy(library.Wait.forLogMessage('from memory'))
      .start();
    await container.copyContentToContainer([{ content: 'later\n', target: '/in/later.txt' }]);
    assert.equal(
      (await container.exec(['sh', '-c', 'stat -c %a /in/content.txt; cat /in/later.txt'])).output,
      '640\nlater\n',
    );
    assert.match(await text(await container.copyArchiveFromContainer('/in/later.txt')), /later\n/);
    await container.stop();
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('health checks as a wait strategy', async () => {
  const container = await new library.GenericContainer(registry.reference)
    .withCommand(['sh', '-c', 'sleep 1; touch /ready; sleep 100'])
    .withHealthCheck({
      test: ['CMD-SHELL', 'test -e /ready'],
      interval: 200,
      timeout: 5000,
      retries: 50,
      startPeriod: 0,
    })
    .withWaitStrategy(library.Wait.forHealthCheck())
    .start();
  assert.equal((await container.exec(['test', '-e', '/ready'])).exitCode, 0);
  await container.stop();
});

test('containers on one network find each other by name', async () => {
  const network = await new library.Network().start();
  const server = await new library.GenericContainer(registry.reference)
    .withNetwork(network)
    .withNetworkAliases('server', 'other')
    .withCommand(['sh', '-c', `nc -ll -p 9000 -e echo pong & ${isListening(9000)}; echo serving; wait`])
    .withWaitStrategy(library.Wait.forLogMessage('serving'))
    .start();
  const client = await new library.GenericContainer(registry.reference)
    .withNetwork(network)
    .withCommand(['sleep', '100'])
    .start();
  for (const name of ['server', 'other'])
    assert.equal((await client.exec(['sh', '-c', `nc ${name} 9000 </dev/null`])).output, 'pong\n');
  await client.stop();
  await server.stop();
  await network.stop();
  assert.equal(
    (await callJson<unknown[]>(engine.socketPath, 'GET', '/networks?filters={"type":["custom"]}')).length,
    0,
  );
});

test('a container that ends too early, and one that is never ready, are told apart and removed', async () => {
  const failing = new library.GenericContainer(registry.reference)
    .withCommand(['sh', '-c', 'echo broken; exit 9'])
    .withWaitStrategy(library.Wait.forLogMessage('ready'))
    .withStartupTimeout(20_000);
  await assert.rejects(failing.start(), /Log stream ended|broken|ready/);
  const oneShot = await new library.GenericContainer(registry.reference)
    .withCommand(['true'])
    .withWaitStrategy(library.Wait.forOneShotStartup())
    .start();
  await oneShot.stop();
  const silent = new library.GenericContainer(registry.reference)
    .withCommand(['sleep', '100'])
    .withExposedPorts(1)
    .withStartupTimeout(1500);
  await assert.rejects(silent.start(), /not bound after|port/i);
  assert.deepEqual(await containersOf(), []);
});

test('logs are followed from the beginning, and bytes reach a published port', async () => {
  const container = await new library.GenericContainer(registry.reference)
    .withCommand([
      'sh',
      '-c',
      `echo first; nc -l -p 7000 | cat & ${isListening(7000)}; echo second >&2; wait; echo third`,
    ])
    .withExposedPorts(7000)
    .withWaitStrategy(library.Wait.forLogMessage('second'))
    .start();
  const logs = text(await container.logs());
  await new Promise<void>((resolve, reject) => {
    const socket = connect(container.getMappedPort(7000), container.getHost(), () => socket.end('through the port\n'));
    socket.once('error', reject);
    socket.once('close', () => resolve());
    socket.resume();
  });
  assert.deepEqual((await logs).split('\n').filter(Boolean).sort(), ['first', 'second', 'third', 'through the port']);
  await container.stop();
});

test('an image is built of a Dockerfile, with arguments, a target and an ignore file', async () => {
  const context = await mkdtemp(join(tmpdir(), 'testcontainers-'));
  cleanup.add(() => rm(context, { recursive: true }));
  const stages = ['COPY . /all', 'RUN echo "$WHO" > /who', 'FROM one', 'RUN exit 1'];
  await writeFile(
    join(context, 'own.Dockerfile'),
    `FROM ${registry.reference} AS one\nARG WHO\n${stages.join('\n')}\n`,
  );
  await writeFile(join(context, '.dockerignore'), 'left-out\n');
  await Promise.all(['kept', 'left-out'].map((name) => writeFile(join(context, name), '')));
  const image = await library.GenericContainer.fromDockerfile(context, 'own.Dockerfile')
    .withBuildArgs({ WHO: 'somebody' })
    .withTarget('one')
    .build('testcontainers/built', { deleteOnExit: false });
  const container = await image
    .withCommand(['sh', '-c', 'echo ready; exec sleep 1000'])
    .withWaitStrategy(library.Wait.forLogMessage('ready'))
    .start();
  try {
    const said = await container.exec(['sh', '-c', 'cat /who; ls /all']);
    assert.deepEqual(said.output.trim().split('\n'), ['somebody', 'kept', 'own.Dockerfile']);
  } finally {
    await container.stop();
  }
  await callJson(engine.socketPath, 'DELETE', '/images/testcontainers/built:latest');
});
