/** The unmodified buildx at the door of builds; a stand-in builds. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { EngineError } from '../../src/errors/engine-error.js';
import { ContextCache } from '../../src/http/buildkit/context-cache.js';
import { BrowserGuard } from '../../src/http/browser-guard.js';
import { BuildKitDoor } from '../../src/http/buildkit/door.js';
import { BuildHistory } from '../../src/http/buildkit/history.js';
import { receiveTree } from '../../src/http/buildkit/receive-tree.js';
import { Sessions } from '../../src/http/buildkit/session.js';
import type { Solver } from '../../src/http/buildkit/solver.js';
import { route } from '../../src/http/route.js';
import { Buildx } from '../support/buildx.js';
import { buildxPlugins } from '../support/dockerd.js';
import { call, RawConnection } from '../support/http.js';
import { TestFront } from '../support/test-front.js';

const directory = mkdtempSync(join(tmpdir(), 'door-'));
const logger = { debug() {}, info() {}, warn() {}, error() {}, child: () => logger };
const sessions = new Sessions();
const history = new BuildHistory(join(directory, 'history'), logger);
const contexts = new ContextCache(join(directory, 'contexts'));
/** Bytes of files that the last build received. */
let received = 0;
let kept = '';
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

const solver: Solver = {
  async solve(job, order) {
    const session = await sessions.wait(job.request.session);
    const digest = `sha256:${'a'.repeat(64)}`;
    const started = Date.now();
    job.progress.vertex({ digest, inputs: [], name: 'the only step', cached: false, started });
    const keptDirectory = await contexts.acquire(`context ${session.sharedKey}`);
    received = 0;
    kept = keptDirectory.path;
    const call = session.client.open('/moby.filesync.v1.FileSync/DiffCopy', { metadata: { 'dir-name': 'context' } });
    await receiveTree(keptDirectory.path, call, { bytes: (total) => (received = total) });
    await keptDirectory.release(true);
    if (order.attrs.get('target') === 'broken') throw new EngineError('internal', 'process did not complete: 7');
    for (let i = 0; i < 3000; i++) job.progress.log(digest, 1, Buffer.from(`line ${i}\n`));
    job.progress.vertex({ digest, inputs: [], name: 'the only step', cached: false, started, completed: Date.now() });
    return { exporterResponse: { 'containerimage.digest': digest }, metadata: {} };
  },
  usage: async () => [],
  prune: async () => [],
};
const door = new BuildKitDoor({
  sessions,
  history,
  solver,
  worker: { id: 'w1', platforms: [{ os: 'linux', architecture: 'amd64' }], hostGateway: () => undefined },
  logger,
});
const front = new TestFront([
  ...door.routes(),
  route('GET', '/version', (x) =>
    x.sendJson(200, { Version: '28.5.2', ApiVersion: '1.51', MinAPIVersion: '1.24', Os: 'linux', Arch: 'amd64' }),
  ),
]);
after(() => {
  door.close();
  rmSync(directory, { recursive: true, force: true });
});

test('buildx lists, builds, keeps what has not changed, and shows errors and history', { skip }, async () => {
  const buildx = new Buildx(join(directory, 'work'), `unix://${front.path}`);
  buildx.write('c/Dockerfile', 'FROM scratch\n');
  buildx.write('c/a/b', 'b');
  buildx.write('c/a-b', 'x'.repeat(100_000));
  const listed = await buildx.ok(['buildx', 'ls']);
  assert.match(listed.stdout, /default\*.*docker/);
  assert.match(listed.stdout, /v0\.25\.2.*linux\/amd64/);

  const first = await buildx.ok(['build', '.'], { in: 'c' });
  assert.match(first.stderr, /the only step/);
  assert.match(first.stderr, /line 2999/);
  assert.equal(received, 100_000 + 1 + 13);
  assert.deepEqual(readdirSync(kept).toSorted(), ['Dockerfile', 'a', 'a-b']);
  assert.equal(readFileSync(join(kept, 'a/b'), 'utf8'), 'b');

  buildx.write('c/a/b', 'cc');
  rmSync(join(buildx.directory, 'c/a-b'));
  utimesSync(join(buildx.directory, 'c/a/b'), 1, 1.5);
  await buildx.ok(['build', '-q', '.'], { in: 'c' });
  assert.equal(received, 2);
  assert.deepEqual(readdirSync(kept).toSorted(), ['Dockerfile', 'a']);
  assert.equal(statSync(join(kept, 'a/b')).mtimeMs, 1500);

  const broken = await buildx.run(['build', '--target', 'broken', '.'], { in: 'c' });
  assert.equal(broken.status, 1);
  assert.match(broken.stderr, /failed to solve: process did not complete: 7/);
  const builds = await buildx.ok(['buildx', 'history', 'ls']);
  assert.equal(builds.stdout.trim().split('\n').length, 4, builds.stdout);
  assert.match(builds.stdout, /Error/);
});

test('bake shares a directory of two targets, over TCP whose guard knows no name', { skip }, async () => {
  const guard = new BrowserGuard({ names: [], allowsBrowsers: () => false });
  const listener = await front.front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, guard });
  try {
    const buildx = new Buildx(join(directory, 'bake'), `tcp://127.0.0.1:${listener.port}`);
    buildx.write('Dockerfile', 'FROM scratch\n');
    buildx.write(
      'docker-bake.json',
      JSON.stringify({ group: { default: { targets: ['a', 'b'] } }, target: { a: {}, b: {} } }),
    );
    const { stderr } = await buildx.ok(['buildx', 'bake']);
    assert.match(stderr, /line 2999/);
  } finally {
    await listener.close(100);
  }
});

test('upgrades that cannot be are refused in the words of dockerd', async () => {
  const ask = async (path: string, headers: Record<string, string>): Promise<unknown[]> => {
    const reply = await call(front.path, 'POST', path, { headers });
    return [reply.status, reply.body.toString().trim()];
  };
  const refusal = (message: string): string => JSON.stringify({ message });
  assert.deepEqual(await ask('/grpc', {}), [500, refusal('no upgrade proto in request')]);
  assert.deepEqual(await ask('/session', {}), [400, refusal('no upgrade proto in request')]);
  const tcp = { connection: 'Upgrade', upgrade: 'tcp' };
  assert.deepEqual(await ask('/grpc', tcp), [500, refusal('protocol tcp not supported')]);
  const session = 'POST /session HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n';
  const first = await RawConnection.open(front.path);
  first.write(`${session}X-Docker-Expose-Session-Uuid: s1\r\n\r\n`);
  assert.match(await first.readThrough('\r\n\r\n'), /^HTTP\/1.1 101 Switching Protocols\r\n/);
  const h2c = { connection: 'Upgrade', upgrade: 'h2c', 'x-docker-expose-session-uuid': 's1' };
  assert.deepEqual(await ask('/session', h2c), [400, refusal('session s1 already exists')]);
  first.close();
  // A connection that is dropped without a byte leaves nothing behind.
  const second = await RawConnection.open(front.path);
  second.write(`${session.replace('/session', '/grpc')}\r\n`);
  await second.readThrough('\r\n\r\n');
  second.close();
});
