/** The unmodified buildx at the door of builds. A stand-in builds: it asks for all that a client may be asked for. */
import assert from 'node:assert/strict';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { internal } from '../../src/errors/engine-error.js';
import { BrowserGuard } from '../../src/http/browser-guard.js';
import { AgentSockets } from '../../src/http/buildkit/agent-sockets.js';
import { ContextCache } from '../../src/http/buildkit/context-cache.js';
import { BuildKitDoor } from '../../src/http/buildkit/door.js';
import { EngineSolver } from '../../src/http/buildkit/engine-solver.js';
import { BuildHistory } from '../../src/http/buildkit/history.js';
import { DEFAULT_BUILDER_HISTORY } from '../../src/config/builder-history.js';
import { RequestBodies } from '../../src/http/buildkit/request-bodies.js';
import { SourceReferences } from '../../src/http/buildkit/source-references.js';
import { Sessions } from '../../src/http/buildkit/session.js';
import { route } from '../../src/http/route.js';
import type { BuildEngine, BuildRequest, BuildResult, CacheUsage } from '../../src/ports/build.js';
import { noteDigests } from '../../src/build/files/kept-digests.js';
import { writeFiles } from '../../src/build/files/write-files.js';
import type { SourceDirectories } from '../../src/ports/build-cache.js';
import { Buildx } from '../support/buildx.js';
import { buildxPlugins } from '../support/dockerd.js';
import { call, RawConnection } from '../support/http.js';
import { silentLog } from '../support/silent-log.js';
import { TestFront } from '../support/test-front.js';

const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const directory = mkdtempSync(join(tmpdir(), 'door-'));
const DIGEST = `sha256:${'a'.repeat(64)}` as const;
const CACHE: CacheUsage[] = ['one', 'two'].map((id) => ({
  id,
  parents: [],
  type: 'regular',
  description: `[1/2] COPY ${id}`,
  inUse: false,
  shared: false,
  size: 1000,
  createdAt: 1_700_000_000_000,
  lastUsedAt: undefined,
  usageCount: 1,
}));

/** Question and answer of the protocol of agents. */
const LIST_KEYS = Buffer.from('000000010b', 'hex');
const NO_KEYS = Buffer.from('000000050c00000000', 'hex');

/** The last request, and what was learned from its client. */
let request: BuildRequest | undefined;
let files: string[] = [];
let changedMs = 0;
let learned: string[] = [];

async function work(asked: BuildRequest): Promise<BuildResult> {
  request = asked;
  const { observer, context, target } = asked;
  const vertex = { digest: DIGEST, inputs: [], name: 'the only step', cached: false, started: Date.now() };
  observer.vertex(vertex);
  const tree = await context.tree({ ignore: ['left-out'], follow: [] }, new AbortController().signal);
  files = readdirSync(tree.directory, { recursive: true }).map(String).toSorted();
  changedMs = statSync(join(tree.directory, 'a/b')).ctimeMs;
  await tree.release();
  if (target === 'broken')
    throw internal('process "/bin/sh -c false" did not complete successfully: exit code: 7', {
      details: { vertex: DIGEST, exitCode: 7, lines: { start: 1, end: 1 } },
    });
  if (target === 'services') await askForAll(asked);
  const warning = { vertex: DIGEST, level: 1, short: 'Rule: take care (line 1)', detail: ['why'], url: 'https://x/' };
  observer.warning({ ...warning, ranges: [{ start: 1, end: 1 }] });
  for (let i = 0; i < 3000; i++) observer.log(DIGEST, 1, Buffer.from(`line ${i}\n`));
  observer.vertex({ ...vertex, completed: Date.now() });
  return { platforms: [], imageId: DIGEST, unusedArgs: [], release: () => Promise.resolve() };
}

async function askForAll({ secret, sshAgent, credentials, outputs }: BuildRequest): Promise<void> {
  const agent = await sshAgent('default');
  const connection = connect(agent.socketPath);
  connection.write(LIST_KEYS);
  // The client writes the length and the rest one after the other, and a stream has no borders.
  let answer = Buffer.alloc(0);
  for await (const piece of connection as AsyncIterable<Buffer>) {
    answer = Buffer.concat([answer, piece]);
    if (answer.length >= NO_KEYS.length) break;
  }
  learned = [
    String(await secret('s')),
    String(await secret('absent')),
    JSON.stringify(await credentials('registry.test')),
    JSON.stringify((await credentials('other.test')) ?? null),
    answer.toString('hex'),
  ];
  await agent.close();
  await assert.rejects(sshAgent('absent'), /unset ssh forward key absent/);
  const result = join(directory, 'result');
  const files = {
    platform: 'linux/amd64',
    directory: result,
    scanned: [],
    recipe: () => assert.fail('nobody asks for it'),
  };
  for (const output of outputs) if (output.kind === 'files') await output.take([files], result);
}

const engine: BuildEngine = {
  start: (asked) => ({ id: asked.id, result: work(asked), cancel: () => undefined }),
  cancel: () => undefined,
  cacheUsage: async () => CACHE,
  pruneCache: async ({ selects }) => ({ removed: CACHE.filter(selects), reclaimed: 1000 }),
};
/** Keeps directories, each of which belongs to one build at a time. */
const keptInUse = new Set<string>();
const keptContexts: SourceDirectories = {
  openSource: async ({ id }) => {
    let kept = join(directory, `kept-${id}`);
    while (keptInUse.has(kept)) kept += '+';
    keptInUse.add(kept);
    mkdirSync(kept, { recursive: true });
    return { directory: kept, digests: `${kept}.digests`, release: async () => void keptInUse.delete(kept) };
  },
};
const sessions = new Sessions();
const bodies = new RequestBodies();
const agents = new AgentSockets(join(directory, 'agents'));
const door = new BuildKitDoor({
  sessions,
  sources: new SourceReferences({
    sources: { load: () => Promise.reject(new Error('no addresses here')) },
    sessions,
    agents,
  }),
  bodies,
  history: new BuildHistory(
    join(directory, 'history'),
    { ...DEFAULT_BUILDER_HISTORY, maxLogBytes: 1 << 20 },
    silentLog,
  ),
  solver: new EngineSolver({
    engine,
    sessions,
    contexts: new ContextCache(join(directory, 'contexts'), keptContexts, {
      writeFiles: async (batch) => writeFiles(batch),
      noteDigests: async (digests) => noteDigests(digests),
    }),
    agents,
    grantable: ['network.host'],
    prepare: () => Promise.reject(internal('there are no layers')),
    push: () => Promise.reject(internal('there is no registry')),
    layers: { find: () => undefined },
    keepsIndexes: false,
    openBlobs: () => Promise.reject(internal('there are no layers')),
    state: () => Promise.reject(internal('nothing is attested')),
    pushCache: () => Promise.reject(internal('there is no registry')),
    pushSet: () => Promise.reject(internal('there is no registry')),
    configs: { find: () => Promise.reject(internal('there are no images')) },
    host: { os: 'linux', architecture: 'amd64' },
    bodies,
    unpack: () => Promise.reject(new Error('no archives here')),
    fetch: () => Promise.reject(new Error('no addresses here')),
    pack: async function* (from) {
      yield await Promise.resolve(Buffer.from(`tar of ${readdirSync(from).join(' ')}`));
    },
  }),
  worker: {
    id: 'w1',
    platforms: [{ os: 'linux', architecture: 'amd64' }],
    snapshotter: 'test',
    gcRules: [],
    hostGateway: () => '10.9.8.7',
  },
});
const front = new TestFront([
  ...door.routes(),
  route('GET', '/version', (x) =>
    x.sendJson(200, { Version: '28.5.2', ApiVersion: '1.51', MinAPIVersion: '1.24', Os: 'linux', Arch: 'amd64' }),
  ),
]);
let made: Buildx | undefined;

/** The client, with a directory to build in `c`. */
function buildx(): Buildx {
  if (made !== undefined) return made;
  made = new Buildx(join(directory, 'work'), `unix://${front.path}`, 'docker');
  made.write('c/Dockerfile', 'FROM scratch\n');
  made.write('c/a/b', 'b');
  made.write('c/a-b', 'x'.repeat(100_000));
  made.write('c/left-out', '');
  return made;
}

after(() => {
  door.close();
  rmSync(directory, { recursive: true, force: true });
});

test('buildx lists, builds, keeps what has not changed, and shows errors and history', { skip }, async () => {
  const { ok, run } = { ok: buildx().ok.bind(buildx()), run: buildx().run.bind(buildx()) };
  assert.match((await ok(['buildx', 'ls'])).stdout, /v0\.25\.2.*linux\/amd64/);

  const options = [
    '--add-host',
    'h:1.2.3.4',
    '--add-host',
    'g:host-gateway',
    '--shm-size',
    '1m',
    '--ulimit',
    'nofile=5:6',
  ];
  const first = await ok(['build', ...options, '-t', 'a/b', '--build-arg', 'X=a,b', '--no-cache', '.'], { in: 'c' });
  assert.match(first.stderr, /the only step/);
  assert.match(first.stderr, /line 0\n(?:.*\n)*.*line 2999\n/);
  assert.match(first.stderr, /Rule: take care \(line 1\)/);
  assert.deepEqual(files, ['Dockerfile', 'a', 'a-b', 'a/b']);
  assert.ok(request);
  assert.deepEqual(request.run.extraHosts.toSorted(), ['g:10.9.8.7', 'h:1.2.3.4']);
  assert.deepEqual([request.run.shmSize, request.run.ulimits], [1 << 20, [{ Name: 'nofile', Soft: 5, Hard: 6 }]]);
  assert.deepEqual([request.noCache, request.buildArgs], ['all', new Map([['X', 'a,b']])]);
  assert.deepEqual(request.outputs, [{ kind: 'image', names: ['a/b'] }]);

  const before = changedMs;
  rmSync(join(buildx().directory, 'c/a-b'));
  await ok(['build', '-q', '.'], { in: 'c' });
  assert.deepEqual([files, changedMs], [['Dockerfile', 'a', 'a/b'], before]);
  buildx().write('c/a/b', 'cc');
  await ok(['build', '-q', '.'], { in: 'c' });
  assert.notEqual(changedMs, before);

  const broken = await run(['build', '--target', 'broken', '.'], { in: 'c' });
  assert.equal(broken.status, 1);
  assert.match(broken.stderr, /1 \| >>> FROM scratch/);
  assert.match(broken.stderr, /failed to solve: process "\/bin\/sh -c false" did not complete.*exit code: 7/);
  const listed = (await ok(['buildx', 'history', 'ls'])).stdout.trim().split('\n');
  assert.equal(listed.length, 5, listed.join('\n'));
  assert.match(listed[1] ?? '', /Error/);
});

test('a client gives secrets, logins and agents, and gets files', { skip }, async () => {
  const agent = createServer((connection) => {
    // The client looks whether somebody answers, too.
    let asked = 0;
    connection
      .on('error', () => undefined)
      .on('data', (piece) => {
        asked += piece.length;
        if (asked % LIST_KEYS.length === 0) connection.write(NO_KEYS);
      });
  });
  const socket = join(directory, 'agent.sock');
  await new Promise<void>((resolve) => agent.listen(socket, resolve));
  mkdirSync(join(directory, 'result/d'), { recursive: true });
  writeFileSync(join(directory, 'result/d/f'), 'made', { mode: 0o750 });
  symlinkSync('d/f', join(directory, 'result/link'));
  buildx().write('secret', 'the secret');
  const auth = Buffer.from('me:pass').toString('base64');
  const config = JSON.parse(readFileSync(join(buildx().directory, 'cli/config.json'), 'utf8')) as object;
  buildx().write('cli/config.json', JSON.stringify({ ...config, auths: { 'registry.test': { auth } } }));
  const args = ['build', '--target', 'services', '--secret', 'id=s,src=../secret', '--ssh', `default=${socket}`, '.'];
  await buildx().ok([...args, '-o', '../out'], { in: 'c' });
  agent.close();
  assert.deepEqual(learned, [
    'the secret',
    'undefined',
    JSON.stringify({ username: 'me', password: 'pass', serverAddress: 'registry.test' }),
    'null',
    NO_KEYS.toString('hex'),
  ]);
  const out = join(buildx().directory, 'out');
  assert.deepEqual(readdirSync(out, { recursive: true }).map(String).toSorted(), ['d', 'd/f', 'link']);
  assert.equal(readFileSync(join(out, 'link'), 'utf8'), 'made');
  assert.equal(statSync(join(out, 'd/f')).mode & 0o777, 0o750);
});

test('the cache is shown and emptied by filters', { skip }, async () => {
  const shown = await buildx().ok(['buildx', 'du', '--format', '{{.ID}}']);
  assert.deepEqual(shown.stdout.trim().split('\n'), ['one', 'two']);
  const pruned = await buildx().ok(['builder', 'prune', '-f', '--filter', 'id=two']);
  assert.match(pruned.stdout, /^two\*?\s/m);
  assert.doesNotMatch(pruned.stdout, /^one/m);
});

test('bake shares a directory of two targets, over TCP whose guard knows no name', { skip }, async () => {
  const guard = new BrowserGuard({ names: [], allowsBrowsers: () => false });
  const listener = await front.front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, guard });
  try {
    const overTcp = new Buildx(join(directory, 'bake'), `tcp://127.0.0.1:${listener.port}`);
    overTcp.write('Dockerfile', 'FROM scratch\n');
    overTcp.write('a/b', '');
    const bake = { group: { default: { targets: ['one', 'two'] } }, target: { one: {}, two: {} } };
    overTcp.write('docker-bake.json', JSON.stringify(bake));
    assert.match((await overTcp.ok(['buildx', 'bake'])).stderr, /line 2999/);
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
  assert.deepEqual(await ask('/grpc', {}), [400, refusal('no upgrade proto in request')]);
  assert.deepEqual(await ask('/session', {}), [400, refusal('no upgrade proto in request')]);
  const tcp = { connection: 'Upgrade', upgrade: 'tcp' };
  assert.deepEqual(await ask('/grpc', tcp), [400, refusal('protocol tcp not supported')]);
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
