/**
 * The output of containers while the daemon is killed, and while it is away: what is written then is in the log once,
 * also when the container ends meanwhile. OUTPUT_KILLS=20 OUTPUT_CONTAINERS=10 OUTPUT_FLOOD=600000 is the long run.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { removeContainers } from '../support/container-removal.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { randomNumbers } from '../support/random-numbers.js';
import { waitFor } from '../support/wait.js';

const KILLS = Number(process.env['OUTPUT_KILLS'] ?? 2);
const CONTAINERS = Number(process.env['OUTPUT_CONTAINERS'] ?? 4);
const SEED = Number(process.env['ENGINE_TEST_SEED'] ?? Date.now() % 1_000_000);
/** Each container writes a hundred lines so often in a second. */
const BURSTS = 10;
/** A flood has so many lines. */
const FLOOD = Number(process.env['OUTPUT_FLOOD'] ?? 150_000);
/** The least that the log has of a line: its number, its stream and its time. */
const LOGGED_BYTES = 70;
const KINDS = [[], ['-t'], ['--log-driver', 'local']];

const cleanup = new Cleanup();
const random = randomNumbers(SEED);
const gates = mkdtempSync(join(tmpdir(), 'gates-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(gates, { recursive: true }));
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--live-restore'] })));
  cleanup.add(() => removeContainers(engine));
});
after(() => cleanup.run());

interface Writer {
  readonly name: string;
  readonly pid: string;
}

let writers = 0;

/** Writes numbered lines until its gate is there, then how many they are. */
async function startWriter(): Promise<Writer> {
  const name = `writer${writers}`;
  const flags = KINDS[writers % KINDS.length] ?? [];
  writers++;
  const block = 'seq $((i * 100)) $((i * 100 + 99)); i=$((i + 1))';
  const rest = `while [ ! -e /gates/${name} ]; do ${block}; sleep ${1 / BURSTS}; done; echo $((i * 100)) end`;
  // The gate of the last ones is there at once, and they write too.
  const script = `i=0; ${block}; ${rest}`;
  await engineOk(engine, ['run', '-d', '--name', name, '-v', `${gates}:/gates`, ...flags, image, 'sh', '-c', script]);
  return { name, pid: await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', name]) };
}

async function check({ name }: Writer): Promise<void> {
  await waitFor(`the end of ${name}`, async () => {
    return (await engineOk(engine, ['inspect', '-f', '{{.State.Status}}', name])) === 'exited';
  });
  const { body } = await call(engine.socketPath, 'GET', `/containers/${name}/logs?stdout=1&stderr=1`);
  const isTty = (await engineOk(engine, ['inspect', '-f', '{{.Config.Tty}}', name])) === 'true';
  const lines = (isTty ? body : withoutFrames(body)).toString().replaceAll('\r', '').trimEnd().split('\n');
  const count = Number(/^(\d+) end$/.exec(lines.pop() ?? '')?.[1] ?? -1);
  const numbers = lines.map(Number);
  const odd = numbers.findIndex((number, at) => at > 0 && !(number > (numbers[at - 1] ?? -1)));
  const around = lines.slice(Math.max(0, odd - 2), odd + 3).join(' ');
  assert.ok(odd < 0 && count > 0, `${name} (seed ${SEED}): ${count} lines; at ${odd}: ${around}`);
  assert.equal(lines.length, count, `${name} (seed ${SEED}): lines are missing`);
  linesSeen += count;
  await engineOk(engine, ['rm', name]);
}

let linesSeen = 0;

function withoutFrames(body: Buffer): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < body.length;) {
    const length = body.readUInt32BE(at + 4);
    pieces.push(body.subarray(at + 8, at + 8 + length));
    at += 8 + length;
  }
  return Buffer.concat(pieces);
}

test('a restart loses nothing of a flood, and a line whose beginning was read already stays one line', async () => {
  const script = `printf beginning; while [ ! -e /gates/flood ]; do sleep 0.1; done; echo .; exec seq 1 ${FLOOD}`;
  const flags = ['--name', 'flood', '--log-opt', 'max-size=1g', '-v', `${gates}:/gates`];
  await engineOk(engine, ['run', '-d', ...flags, image, 'sh', '-c', script]);
  await engine.stop();
  await engine.start();
  const { LogPath } = await callJson<{ LogPath: string }>(engine.socketPath, 'GET', '/containers/flood/json');
  writeFileSync(join(gates, 'flood'), '');
  await waitFor('a third of the flood', () => statSync(LogPath).size > (FLOOD / 3) * LOGGED_BYTES, undefined, 5);
  await engine.stop();
  await engine.start();
  await engineOk(engine, ['wait', 'flood']);
  const { body } = await call(engine.socketPath, 'GET', '/containers/flood/logs?stdout=1');
  const text = withoutFrames(body).toString();
  assert.ok(text.startsWith('beginning.\n1\n'), text.slice(0, 40));
  const lines = text.trimEnd().split('\n').slice(1);
  const odd = lines.findIndex((line, at) => line !== String(at + 1));
  assert.ok(
    odd < 0 && lines.length === FLOOD,
    `${lines.length} lines, at ${odd}: ${lines.slice(odd - 1, odd + 2).join(' ')}`,
  );
  await engineOk(engine, ['rm', 'flood']);
});

test('what is written while the daemon is away is logged once, also by containers that end meanwhile', async () => {
  const live: Writer[] = [];
  for (let i = 0; i < CONTAINERS; i++) live.push(await startWriter());
  const problems: unknown[] = [];
  for (let round = 0; round < KILLS; round++) {
    await delay(200 + random(500));
    // The last time a daemon ends as it is told to.
    await engine.stop(round === KILLS - 1 ? 'SIGTERM' : 'SIGKILL');
    const ending = live.shift();
    assert.ok(ending);
    writeFileSync(join(gates, ending.name), '');
    await waitFor(`the process of ${ending.name} to end`, () => !existsSync(`/proc/${ending.pid}/exe`));
    await engine.start();
    await check(ending).catch((error: unknown) => problems.push(error));
    live.push(await startWriter());
  }
  for (const { name } of live) writeFileSync(join(gates, name), '');
  for (const writer of live) await check(writer).catch((error: unknown) => problems.push(error));
  console.log(`${linesSeen} lines of ${writers} containers over ${KILLS} ends of the daemon`);
  assert.deepEqual(problems, []);
});
