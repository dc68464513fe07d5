/**
 * Patterns of clients that take other engines for ever: the daemon answers or refuses them, and goes on answering
 * others.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, type CallOptions } from '../support/http.js';
import { pingWhile } from '../support/ping.js';

const cleanup = new Cleanup();
/** Long enough for an exponential search never to end. */
const LONG_NAME = `${'a'.repeat(60)}_`;
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
  await callJson(engine.socketPath, 'POST', `/containers/create?name=${LONG_NAME}`, {
    json: { Image: image, Cmd: ['true'] },
  });
  await callJson(engine.socketPath, 'POST', '/networks/create', { json: { Name: LONG_NAME } });
  await callJson(engine.socketPath, 'POST', '/volumes/create', { json: { Name: LONG_NAME } });
  await callJson(engine.socketPath, 'POST', `/images/${image}/tag?repo=${'e'.repeat(60)}`);
});

after(async () => {
  await callJson(engine.socketPath, 'DELETE', `/containers/${LONG_NAME}?force=1`);
  await cleanup.run();
});

interface Answer {
  readonly status: number;
  readonly text: string;
}

function attack(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
  return pingWhile(engine, () => call(engine.socketPath, method, path, options));
}

function list(what: string, filters: Readonly<Record<string, readonly string[]>>): Promise<Answer> {
  return attack('GET', `/${what}?filters=${encodeURIComponent(JSON.stringify(filters))}`);
}

const EXPLOSIVE = [
  '^/?(a+)+$',
  '(a|a)*$',
  '(a|aa)+$',
  '(.*a){25}$',
  '((a+)+)+b',
  'a{1000}{1000}',
  '((((a{10}){10}){10}){10}){10}',
  '(?=a)(a+)+$',
  '(a?){60}a{60}b',
  '(',
  '[',
  '*',
];

test('regular expressions in filters of containers, networks and volumes', async () => {
  for (const what of ['containers/json', 'networks', 'volumes']) {
    for (const key of what === 'volumes' ? ['name'] : ['name', 'id']) {
      for (const pattern of EXPLOSIVE) {
        const { status, text } = await list(what, { [key]: [pattern] });
        assert.equal(status, 200, `${what} ${key} ${pattern}: ${text}`);
      }
    }
  }
  const found = await list('containers/json', { name: ['^/?(a+)+_$'], status: ['created'] });
  assert.deepEqual(
    (JSON.parse(found.text) as { Names: string[] }[]).map(({ Names }) => Names),
    [[`/${LONG_NAME}`]],
  );
});

test('very many large patterns are refused', async () => {
  const { status, text } = await list('networks', { name: Array.from({ length: 1500 }, (_, i) => `(a{9})*${i}$`) });
  assert.deepEqual([status, text], [400, '{"message":"invalid filter: patterns take too long to match"}\n']);
});

test('shell patterns for images', async () => {
  for (const glob of [
    `${'*e'.repeat(30)}Z`,
    `${'*'.repeat(900)}Z`,
    `${'?*'.repeat(100)}Z`,
    `${'*[a-z]'.repeat(30)}Z`,
  ]) {
    assert.deepEqual(
      await list('images/json', { reference: [glob] }).then(({ status, text }) => [status, text.trim()]),
      [200, '[]'],
      glob,
    );
  }
  const found = await list('images/json', { reference: [`${'*e'.repeat(30)}*`] });
  assert.deepEqual(
    (JSON.parse(found.text) as { RepoTags: string[] }[]).map(({ RepoTags }) => RepoTags),
    [[`${'e'.repeat(60)}:latest`]],
  );
  for (const [glob, message] of [
    ['[', /^syntax error in pattern$/],
    ['e'.repeat(2000), /longer than 1000/],
  ] as const) {
    const { status, text } = await list('images/json', { reference: [glob] });
    assert.equal(status, 400, text);
    assert.match((JSON.parse(text) as { message: string }).message, message);
  }
});

test('filters of events', async () => {
  const filters = encodeURIComponent(
    JSON.stringify({ container: EXPLOSIVE, event: EXPLOSIVE, label: EXPLOSIVE, image: EXPLOSIVE }),
  );
  assert.equal(
    (await attack('GET', `/events?since=1&until=${Math.floor(Date.now() / 1000)}&filters=${filters}`)).status,
    200,
  );
});

test('labels-regex and env-regex of logs', async () => {
  const long = 'a'.repeat(60);
  for (const option of ['labels-regex', 'env-regex']) {
    for (const [pattern, started] of [
      ['^(a+)+$', 204],
      ['(a|a)*$', 204],
      ['a{1000}{1000}', 400],
      ['(', 400],
      ['(?=a)b', 400],
    ] as const) {
      const json = {
        Image: image,
        Cmd: ['true'],
        Env: [`${long}!=1`],
        Labels: { [`${long}!`]: '1' },
        HostConfig: { LogConfig: { Type: 'json-file', Config: { [option]: pattern } } },
      };
      const made = await attack('POST', '/containers/create', { json });
      assert.equal(made.status, 201, made.text);
      const { Id } = JSON.parse(made.text) as { Id: string };
      try {
        const { status, text } = await attack('POST', `/containers/${Id}/start`);
        assert.equal(status, started, `${option} ${pattern}: ${text}`);
        if (started === 400)
          assert.match(text, new RegExp(`log option ${option} is not a regular expression: error parsing regexp`));
      } finally {
        await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`);
      }
    }
  }
});
