/** Authorization plugins of daemons that start, also behind TLS: each test has a daemon of its own. */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { deferred } from '../../src/supervisor/deferred.js';
import { AuthorizationPlugin } from '../support/authorization-plugin.js';
import { Authority, type Certificate, tlsFlags } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let plugin: AuthorizationPlugin;
let second: AuthorizationPlugin;

before(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'authorization-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  plugin = await AuthorizationPlugin.start(join(dir, 'first.sock'));
  cleanup.add(() => plugin.stop());
  second = await AuthorizationPlugin.start(join(dir, 'second.sock'));
  cleanup.add(() => second.stop());
});
after(() => cleanup.run());

test('the daemon does not start without its plugins', async () => {
  await assert.rejects(
    Engine.start(engined({ args: ['--authorization-plugin', 'no-such-plugin'] })),
    /plugin no-such-plugin failed with error: plugin \\?"no-such-plugin\\?" not found/,
  );
});

/** A plugin that answers its greeting when it is told to, and allows everything. */
async function slowToGreet(socketPath: string, greeting: object = { Implements: ['authz'], Allow: true }) {
  const told = deferred();
  const calls: (string | undefined)[] = [];
  const server = createServer(({ url }, response) => {
    calls.push(url);
    void told.promise.then(() => response.end(JSON.stringify(greeting)));
  }).listen(socketPath);
  await once(server, 'listening');
  return { calls, tell: () => told.resolve(), close: () => server.close() };
}

test('a reload during the start decides who is asked, from the first request on', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'authorization-start-'));
  const [hold, held] = [join(dir, 'hold'), join(dir, 'held')];
  // The daemon's supervisor starts when the file is gone.
  const script = [`if [ -e ${hold} ]; then : > ${held}; fi`, `while [ -e ${hold} ]; do sleep 0.05; done`];
  await writeFile(
    join(dir, 'containerd'),
    ['#!/bin/sh', `PATH=\${PATH#*:}`, ...script, 'exec containerd "$@"', ''].join('\n'),
    { mode: 0o755 },
  );
  const slow = await slowToGreet(join(dir, 'slow.sock'));
  const useless = await slowToGreet(join(dir, 'useless.sock'), { Implements: [] });
  const file: Record<string, unknown> = {};
  const starting = await Engine.start(engined({ env: { PATH: `${dir}:${process.env['PATH']}` }, file }));
  const isHeld = (): boolean => existsSync(held);
  const isGreeted = (): boolean => slow.calls.length > 0;
  const isUselessGreeted = (): boolean => useless.calls.length > 0;
  const letGo = (): void => rmSync(hold, { force: true });
  const cases = [
    { at: 'the supervisor starts, no plugin before', before: [], reached: isHeld, goOn: letGo },
    { at: 'the supervisor starts', before: [plugin.socketPath], reached: isHeld, goOn: letGo },
    { at: 'a plugin is greeted', before: [join(dir, 'slow.sock')], reached: isGreeted, goOn: slow.tell },
    {
      at: 'a plugin is greeted that will turn out to be none',
      before: [join(dir, 'useless.sock')],
      reached: isUselessGreeted,
      goOn: useless.tell,
    },
  ];
  try {
    for (const { at, before, reached, goOn } of cases) {
      await starting.stop();
      await plugin.set({});
      await second.set({ deny: [{ uri: '/version' }] });
      await rm(held, { force: true });
      if (reached === isHeld) await writeFile(hold, '');
      file['authorization-plugins'] = before;
      const from = starting.log.length;
      const started = starting.start();
      await Promise.race([started, waitFor(at, reached)]);
      await writeFile(
        join(starting.dir, 'daemon.json'),
        JSON.stringify({ 'authorization-plugins': [second.socketPath] }),
      );
      process.kill(starting.pid, 'SIGHUP');
      await waitFor('the reload', () => starting.log.slice(from).includes('configuration reloaded'));
      assert.ok(!starting.log.slice(from).includes('API listens'), at);
      goOn();
      await started;
      assert.equal((await call(starting.socketPath, 'GET', '/version')).text, second.denial, at);
      assert.equal((await call(starting.socketPath, 'GET', '/info')).status, 200, at);
      const requests = (await second.asked()).filter(({ phase }) => phase === 'request');
      // The first ones are the `_ping`s that wait for the start.
      const uris = [...new Set(requests.map(({ fields }) => fields['RequestUri']))];
      assert.deepEqual(uris, ['/_ping', '/version', '/info'], at);
      assert.deepEqual(await plugin.asked(), [], at);
    }
    assert.deepEqual(slow.calls, ['/Plugin.Activate']);
  } finally {
    letGo();
    slow.tell();
    useless.tell();
    await starting.close();
    slow.close();
    useless.close();
    await rm(dir, { recursive: true });
  }
});

test('over TLS the user is the common name of the certificate, which can be denied', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'authorization-tls-'));
  const ca = new Authority(dir, 'ca');
  const [server, alice, mallory] = [ca.issueServer(), ca.issue('alice'), ca.issue('mallory')];
  const tls = await Engine.start(
    engined({
      args: ['-H', 'tcp://127.0.0.1:0', ...tlsFlags(ca.cert, server), '--feature', 'audit'],
      file: { 'authorization-plugins': [plugin.socketPath] },
    }),
  );
  try {
    const port = await tls.tcpPort();
    const versionAs = (
      { cert, key }: Certificate,
      method = 'GET',
      path = '/version',
    ): Promise<{ status: number; text: string }> =>
      new Promise((resolve, reject) => {
        const outgoing = httpsRequest(
          {
            host: '127.0.0.1',
            port,
            method,
            path,
            ca: readFileSync(ca.cert),
            cert: readFileSync(cert),
            key: readFileSync(key),
            agent: false,
          },
          (reply) => {
            let text = '';
            reply.on('data', (chunk: Buffer) => (text += chunk.toString()));
            reply.once('end', () => resolve({ status: reply.statusCode ?? 0, text }));
          },
        );
        outgoing.once('error', reject);
        outgoing.end();
      });
    await plugin.set({ deny: [{ user: '^mallory$' }] });
    assert.equal((await versionAs(alice)).status, 200);
    assert.deepEqual(await versionAs(mallory), { status: 403, text: plugin.denial });
    const [question] = await plugin.asked();
    assert.equal(question?.fields['User'], 'alice');
    assert.equal(question.fields['UserAuthNMethod'], 'TLS');
    const [pem] = question.fields['RequestPeerCertificates'] as string[];
    assert.equal(
      new X509Certificate(Buffer.from(pem ?? '', 'base64')).fingerprint256,
      new X509Certificate(readFileSync(alice.cert)).fingerprint256,
    );
    await versionAs(mallory, 'POST', '/containers/absent/start');
    await waitFor('the audit line', () =>
      /msg=audit .*user=mallory method=POST path=\/containers\/absent\/start status=403 result=refused/.test(tls.log),
    );
  } finally {
    await tls.close();
    await rm(dir, { recursive: true });
  }
});
