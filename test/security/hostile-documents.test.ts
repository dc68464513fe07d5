/**
 * JSON bodies that are made to cost much: they are refused while other clients are served, and bodies that are only
 * large are taken.
 */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngine } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { pingWhile } from '../support/ping.js';

const cleanup = new Cleanup();
let engine: Engine;

before(async () => {
  engine = await startEngine(cleanup, engined());
});
after(() => cleanup.run());

/** The reply to a body on a connection that is kept alive, which is read on after an early reply. */
function post(path: string, body: Buffer, isChunked = false): Promise<{ status: number; message: string }> {
  const framing = isChunked ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': body.length };
  const headers = { 'Content-Type': 'application/json', Connection: 'keep-alive', ...framing };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      { socketPath: engine.socketPath, method: 'POST', path, headers, agent: false },
      (reply) => {
        let text = '';
        reply.on('data', (chunk: Buffer) => (text += chunk.toString()));
        reply.once('end', () => {
          outgoing.destroy();
          resolve({ status: reply.statusCode ?? 0, message: (JSON.parse(text) as { message: string }).message });
        });
      },
    );
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}

const labels = (count: number): string =>
  JSON.stringify({
    Name: 'many',
    Image: 'x',
    Labels: Object.fromEntries(Array.from({ length: count }, (_, i) => [`l${i}`, 'v'])),
  });

const BODIES: readonly [name: string, path: string, body: () => string, status: number, message: RegExp][] = [
  ['brackets', '/containers/create', () => '['.repeat(4e6), 400, /^invalid JSON: exceeded max depth of 32$/],
  [
    'brackets that close',
    '/networks/create',
    () => '['.repeat(1e6) + ']'.repeat(1e6),
    400,
    /^invalid JSON: exceeded max depth of 32$/,
  ],
  [
    'objects in objects',
    '/volumes/create',
    () => '{"a":'.repeat(500_000),
    400,
    /^invalid JSON: exceeded max depth of 32$/,
  ],
  [
    '80,000 labels of a container',
    '/containers/create',
    () => labels(80_000),
    400,
    /^invalid JSON: more than 20000 members in one array or object$/,
  ],
  [
    '80,000 labels of a network',
    '/networks/create',
    () => labels(80_000),
    400,
    /^invalid JSON: more than 10000 members in one array or object$/,
  ],
  [
    '80,000 labels of a volume',
    '/volumes/create',
    () => labels(80_000),
    400,
    /^invalid JSON: more than 10000 members in one array or object$/,
  ],
  [
    'many arrays',
    '/containers/create',
    () => `[${'[0,0,0,0,0,0,0,0],'.repeat(19_000)}0]`,
    400,
    /^invalid JSON: more than 140000 values/,
  ],
  [
    'a string of 4 MB without an end',
    '/containers/create',
    () => `{"Image":"${'x'.repeat(4e6)}`,
    400,
    /^invalid JSON: /,
  ],
  ['escapes without an end', '/containers/create', () => `{"Image":"${'\\"'.repeat(2e6)}`, 400, /^invalid JSON: /],
  [
    'something behind 4 MB',
    '/containers/create',
    () => `{"Image":"${'x'.repeat(4e6)}"} x`,
    400,
    /^unexpected content after JSON$/,
  ],
  [
    'blanks only',
    '/containers/create',
    () => ' '.repeat(4e6),
    400,
    /^invalid JSON: got EOF while reading request body$/,
  ],
  [
    'more than 4 MiB',
    '/containers/create',
    () => `"${'x'.repeat(5e6)}"`,
    413,
    /^request body is larger than 4194304 bytes$/,
  ],
  [
    'a change of 1 MiB',
    '/containers/x/update',
    () => `"${'x'.repeat(1 << 20)}"`,
    413,
    /^request body is larger than 262144 bytes$/,
  ],
];

for (const [name, path, makeBody, status, message] of BODIES) {
  test(`${name}: refused, while others are served`, { timeout: 120_000 }, async () => {
    const body = Buffer.from(makeBody());
    for (const isChunked of [false, true]) {
      const refused = async (): Promise<void> => {
        const reply = await post(path, body, isChunked);
        assert.equal(reply.status, status, reply.message);
        assert.match(reply.message, message);
      };
      await pingWhile(engine, refused);
    }
  });
}

test('what is large and in order is taken as it is', async () => {
  const Labels = { text: 'ä"\\\u2028'.repeat(200_000), ['__proto__']: 'own', constructor: 'own' };
  const body = JSON.stringify({ Name: 'large', Labels });
  const made = await call(engine.socketPath, 'POST', '/volumes/create', {
    body,
    headers: { 'Content-Type': 'application/json' },
  });
  assert.equal(made.status, 201, made.text.slice(0, 200));
  const shown = await callJson<{ Labels: Record<string, string> }>(engine.socketPath, 'GET', '/volumes/large');
  assert.equal(shown.Labels['text'], Labels.text);
  assert.deepEqual(
    Object.entries(shown.Labels)
      .filter(([, value]) => value === 'own')
      .map(([key]) => key)
      .sort(),
    ['__proto__', 'constructor'],
  );
  await callJson(engine.socketPath, 'DELETE', '/volumes/large');
});

test('many clients with large bodies wait for each other, not the others for them', { timeout: 120_000 }, async () => {
  const body = Buffer.from(`{"Image":"${'x'.repeat(4e6)}"} x`);
  const refused = async (): Promise<void> => {
    for (const { status } of await Promise.all(Array.from({ length: 4 }, () => post('/containers/create', body))))
      assert.equal(status, 400);
  };
  await pingWhile(engine, refused);
});
