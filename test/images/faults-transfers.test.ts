/**
 * Faults in every state of the actors of pulls, layers, pushes and registry sessions, under load: each command is
 * answered, nothing is left that belongs to nobody, and what failed succeeds afterwards. FAULTS_COUNT and FAULTS_SEED
 * as in faults.test.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson, open, type OpenReply } from '../support/http.js';
import { buildImage, generatedLayer, pushImage } from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { randomNumbers } from '../support/random-numbers.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

const COUNT = Number(process.env['FAULTS_COUNT'] ?? 12);
const SEED = Number(process.env['FAULTS_SEED'] ?? 1);
const CLIENTS = 4;
const ANSWER_MS = 120_000;
/** A client that hears nothing for so long has met an effect that hangs. It leaves, and the next one is served. */
const PATIENCE_MS = 15_000;
const TAGS = ['a', 'b', 'c', 'd'] as const;
/** The last line of a stream says this when all went well. */
const SUCCESS = /"status":"Status: |"aux":\{"Tag"/;

const cleanup = new Cleanup();
const armed = join(fileURLToPath(new URL('.', import.meta.url)), `faults-transfers-${process.pid}`);
const main = fileURLToPath(new URL('../support/faulty-main.js', import.meta.url));
const kind = engined({
  main,
  env: {
    FAULTS_COUNT: String(COUNT),
    FAULTS_SEED: String(SEED),
    FAULTS_KINDS: 'pull,layer,push,registry-session',
    FAULTS_HANGS: 'yes',
    FAULTS_ARMED: armed,
  },
});
let engine: Engine;
let registry: TestRegistry;

before(async () => {
  cleanup.add(async () => rmSync(armed, { force: true }));
  chmodSync(main, 0o755);
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  const base = generatedLayer({ root: 'base', bytes: 3 << 20, files: 20, seed: 1 });
  for (const [index, tag] of TAGS.entries()) {
    const own = generatedLayer({ root: tag, bytes: 200_000, files: 5, seed: 10 + index });
    await pushImage(registry.url, 'app', tag, buildImage({ layers: [base, own] }));
  }
  engine = await Engine.start(kind);
  cleanup.add(() => engine.close());
});
after(() => cleanup.run());

const faults = (): string[] =>
  existsSync(armed)
    ? readFileSync(armed, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
    : [];
const hasHung = (): boolean => faults().some((line) => line.includes(' hangs '));
const history: string[] = [];
const told = (): string =>
  [
    'faults:',
    ...faults().slice(-30),
    'commands:',
    ...history.slice(-40),
    'its log ends:',
    engine.log.slice(-6000),
  ].join('\n');

/** Another set of credentials is another job and another session; this registry takes any. */
const credentials = (user: string): Record<string, string> => ({
  'X-Registry-Auth': Buffer.from(JSON.stringify({ username: user, password: 'x' })).toString('base64url'),
});

/** A transfer, which comes to an end that its client can tell, unless the client leaves before. */
async function transfer(path: string, user: string, leaveMs: number | undefined): Promise<void> {
  const line =
    `${new Date().toISOString()} ${path} as ${user}` + (leaveMs === undefined ? '' : `, leaves after ${leaveMs} ms`);
  const begun = Date.now();
  const signal = AbortSignal.timeout(leaveMs ?? PATIENCE_MS);
  let reply: OpenReply | undefined;
  let text = '';
  try {
    reply = await open(engine.socketPath, 'POST', path, { headers: credentials(user), signal });
    for await (const chunk of reply.message) text += String(chunk);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const last = text.trimEnd().split('\n').at(-1) ?? '';
  history.push(`${line} ${reply?.status} ${Date.now() - begun} ms ${last.slice(0, 200)}`);
  if (signal.aborted) {
    if (leaveMs === undefined) assert.ok(hasHung(), `no end of ${line}\n${told()}`);
    return;
  }
  // A fault is the daemon's, and it says so.
  if (reply?.status === 200)
    assert.ok(SUCCESS.test(last) || last.includes('"error":'), `${line} ended with ${last}\n${told()}`);
  else
    assert.ok(
      (reply?.status ?? 0) >= 500 || (reply?.status === 404 && path.includes('/push')),
      `${line} gave ${reply?.status}: ${text}\n${told()}`,
    );
}

async function client(number: number): Promise<void> {
  const random = randomNumbers(SEED * 1000 + number);
  const pick = <T>(items: readonly T[]): T => items[random(items.length)] as T;
  for (let round = 0; faults().length < COUNT; round++) {
    const name = `${registry.host}/app`;
    const tag = pick(TAGS);
    const user = pick(['one', 'two', `u${number}-${round}`]);
    const leaveMs = random(4) === 0 ? random(150) : undefined;
    await transfer(`/images/create?fromImage=${name}&tag=${tag}`, user, leaveMs);
    const target = `${registry.host}/made${number}-${round}`;
    const tagged = await call(engine.socketPath, 'POST', `/images/${name}:${tag}/tag?repo=${target}&tag=v`);
    assert.ok([201, 404].includes(tagged.status), tagged.text);
    if (tagged.status === 201) await transfer(`/images/${target}/push?tag=v`, user, leaveMs);
    for (const one of [`${target}:v`, `${name}:${tag}`]) {
      // Somebody else's pull or push may use it now.
      const removed = await call(engine.socketPath, 'DELETE', `/images/${one}?force=1`);
      assert.ok([200, 404, 409].includes(removed.status), removed.text);
    }
  }
}

interface State {
  readonly asks: number;
  readonly actors: Record<string, unknown[]>;
}

/** As the daemon itself sees it. */
async function state(): Promise<State> {
  const before = engine.log.length;
  process.kill(engine.pid, 'SIGUSR1');
  const path = await waitFor('the state', () => /path=(\S+\.json)/.exec(engine.log.slice(before))?.[1]);
  return JSON.parse(readFileSync(path, 'utf8')) as State;
}

async function nobodyIsLeft(): Promise<void> {
  let seen: State | undefined;
  await waitFor(
    () => `nobody to be left: ${JSON.stringify(seen?.actors)}, asks ${seen?.asks}; ${told()}`,
    async () => {
      seen = await state();
      return seen.asks === 0 && ['pulls', 'transfers', 'pushes'].every((name) => seen?.actors[name]?.length === 0);
    },
    ANSWER_MS,
    100,
  );
}

interface Report {
  readonly kinds: readonly { readonly kind: string; readonly count: number }[];
  readonly findings: readonly unknown[];
}

/** Without images there is nothing of images, unless somebody holds what is nobody's. */
async function nothingIsHeld(): Promise<void> {
  for (const { Id } of await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/images/json')) {
    await callJson(engine.socketPath, 'DELETE', `/images/${Id}?force=1`);
  }
  await callJson(engine.socketPath, 'POST', '/images/prune');
  let report: Report | undefined;
  await waitFor(
    () => `the data root to be empty: ${JSON.stringify(report)}; ${told()}`,
    async () => {
      report = await callJson<Report>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
      const kinds = ['layer', 'layer-record', 'staging', 'image', 'image-record', 'partial', 'trash'];
      return (
        report.findings.length === 0 &&
        report.kinds.every(({ kind: one, count }) => count === 0 || !kinds.includes(one))
      );
    },
    60_000,
    100,
  );
}

test(`${COUNT} faults, seed ${SEED}`, { timeout: 3_600_000 }, async () => {
  writeFileSync(armed, '');
  await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)));
  await nobodyIsLeft();
  await nothingIsHeld();
  for (const tag of TAGS) {
    await pullOk(engine, `${registry.host}/app:${tag}`);
    const target = `${registry.host}/after-${tag}`;
    await callJson(engine.socketPath, 'POST', `/images/${registry.host}/app:${tag}/tag?repo=${target}&tag=v`);
    const pushed = await call(engine.socketPath, 'POST', `/images/${target}/push?tag=v`, {
      headers: credentials('last'),
    });
    assert.match(pushed.text, SUCCESS);
  }
  await nobodyIsLeft();
  await nothingIsHeld();
  assert.equal(await engine.stop(), 0);
  const { status, stdout } = spawnSync(
    main,
    ['fsck', '--config-file', join(engine.dir, 'daemon.json'), '--data-root', join(engine.dir, 'data')],
    { encoding: 'utf8' },
  );
  assert.equal(status, 0, stdout);
});
