/**
 * Malformed requests against a daemon that asks an authorization plugin from its start on: nothing gets around it. No
 * other request may reach this daemon, so that whatever is there afterwards came past the plugin.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { malformedCase } from '../fuzz/malformed-http.js';
import { Random } from '../fuzz/random.js';
import { CASES, inParallel, ROUTES, SEED, send, statuses } from '../fuzz/send-malformed.js';
import { AuthorizationPlugin } from '../support/authorization-plugin.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

test('nothing gets around a plugin that denies everything', async () => {
  const cleanup = new Cleanup();
  try {
    const dir = await mkdtemp(join(tmpdir(), 'fuzz-authorization-'));
    cleanup.add(() => rm(dir, { recursive: true }));
    const plugin = await AuthorizationPlugin.start(join(dir, 'deny.sock'), { deny: [{ method: '^(?!GET$)' }] });
    cleanup.add(() => plugin.stop());
    const options = ['--host', 'tcp://127.0.0.1:0', '--authorization-plugin', plugin.socketPath];
    const engine = await Engine.start(engined({ args: options }));
    cleanup.add(() => engine.close());
    const port = await engine.tcpPort();
    const state = async (): Promise<unknown> => {
      // Requests whose clients have left may still be asking.
      await plugin.set({ deny: [{ method: '^(?!GET$)' }] });
      return await Promise.all(
        ['/containers/json?all=1', '/volumes', '/images/json'].map((path) => callJson(engine.socketPath, 'GET', path)),
      );
    };
    const before = await state();
    await plugin.set({ deny: [{}] });
    const random = new Random(SEED + 1);
    await inParallel(CASES / 3, async () => {
      const request = malformedCase(random, { routes: ROUTES.filter((route) => !route.startsWith('OPTIONS')) });
      const reply = await send(request, engine.socketPath, port);
      const passed = statuses(reply).filter((status) => status < 300 && status !== 100);
      assert.deepEqual(
        passed,
        [],
        `${request.kind} ${JSON.stringify(Buffer.concat(request.pieces).toString('latin1').slice(0, 500))}: ${reply}`,
      );
    });
    assert.deepEqual(await state(), before);
    assert.doesNotMatch(engine.log, /\\n {4}at |unhandled|answered twice|without a reply/i);
  } finally {
    await cleanup.run();
  }
});
