/**
 * A build that the daemon's death has interrupted is repeated and gives what it always gives, and nothing is left of
 * the first attempt. KILLS_COUNT=100 makes it the long run; ENGINE_TEST_SEED repeats one.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { after, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { randomNumbers } from '../support/random-numbers.js';

const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const KILLS = Number(process.env['KILLS_COUNT'] ?? 1);
const SEED = Number(process.env['ENGINE_TEST_SEED'] ?? Date.now() % 1_000_000);
const EPOCH = { SOURCE_DATE_EPOCH: '1700000000' };
const OUTPUT = ['-o', 'type=image,name=killed:1,rewrite-timestamp=true'];

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'kills-'));
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

test(`builds that are killed are repeated (seed ${SEED})`, { skip }, async (t) => {
  const { engine, image } = await startEngineWithImage(cleanup);
  const buildx = new Buildx(join(directory, 'work'), engine.host);
  for (let at = 0; at < 200; at++) buildx.write(`a/files/${at}`, `file ${at} `.repeat(at));
  buildx.write(
    'a/Dockerfile',
    `FROM ${image} AS made\nRUN seq 20000 | sort -r > /sorted\n` +
      `FROM ${image}\nCOPY files /files\nRUN cat /files/* > /all && rm /files/7\n` +
      'COPY --from=made /sorted /sorted\nWORKDIR /w\nRUN --mount=type=cache,target=/c date >> /c/log; echo end > end\n',
  );
  const build = async (...args: readonly string[]): Promise<string> => {
    const { stderr } = await buildx.ok(['build', ...OUTPUT, ...args, '.'], { in: 'a', env: EPOCH });
    return /writing image (\S+)/.exec(stderr)?.[1] ?? stderr;
  };
  const expected = await build();
  const started = performance.now();
  assert.equal(await build('--no-cache'), expected);
  let wholeMs = performance.now() - started;
  const random = randomNumbers(SEED);
  let interrupted = 0;
  for (let at = 0; at < KILLS; at++) {
    const begun = performance.now();
    const building = buildx.start(['build', '--no-cache', ...OUTPUT, '.'], { in: 'a', env: EPOCH });
    const lasted = building.ended.then(() => performance.now() - begun);
    await delay(random(Math.ceil(wholeMs)));
    await engine.stop('SIGKILL');
    if ((await building.ended).status !== 0) interrupted++;
    // The machine is faster now than when a build was measured: later kills must come earlier to meet one.
    else wholeMs = Math.min(wholeMs, await lasted);
    await engine.start();
    assert.equal(await build(), expected, `kill ${at}`);
  }
  if (KILLS >= 20) assert.ok(interrupted > KILLS / 2, `only ${interrupted} of ${KILLS} kills met a build`);
  t.diagnostic(`${interrupted} of ${KILLS} builds were interrupted, and all repeated`);
  const { findings } = await callJson<{ readonly findings: readonly unknown[] }>(
    engine.socketPath,
    'POST',
    '/engine/fsck?dryRun=1',
  );
  assert.deepEqual(findings, []);
});
