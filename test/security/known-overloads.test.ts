/**
 * Requests that held up other engines, or an earlier version of this one: they are refused or done, and others are
 * answered meanwhile.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngine } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, RawConnection } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { pingWhile } from '../support/ping.js';

const MIB = 1024 * 1024;
const cleanup = new Cleanup();
let engine: Engine;

before(async () => {
  engine = await startEngine(cleanup, engined());
});
after(() => cleanup.run());

/** A refusal before the end of the body may be seen as a broken pipe. */
async function post(path: string, body: string): Promise<number> {
  try {
    return (await call(engine.socketPath, 'POST', path, { body, headers: { 'Content-Type': 'application/json' } }))
      .status;
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'EPIPE' || error.code === 'ECONNRESET'))
      return 400;
    throw error;
  }
}

function refused(status: number, what: string): void {
  assert.ok(status >= 400 && status < 500, `${what} gave ${status}`);
}

test('sets of processors that fill the memory (CVE-2018-20699)', async () => {
  for (const list of [
    '0-2147483647',
    '0-18446744073709551615',
    Array.from({ length: 30_000 }, () => '0-8191').join(','),
  ]) {
    for (const field of ['CpusetCpus', 'CpusetMems']) {
      const body = JSON.stringify({ Image: 'absent', HostConfig: { [field]: list } });
      refused(await pingWhile(engine, () => post('/containers/create', body)), `${field} ${list.slice(0, 30)}`);
    }
  }
});

test('JSON that is deep, long, broken or full of members', async () => {
  const bodies = {
    brackets: '['.repeat(8 * MIB),
    members: `{"a":`.repeat(MIB),
    labels: JSON.stringify({
      Image: 'absent',
      Labels: Object.fromEntries(Array.from({ length: 80_000 }, (_, i) => [`label${i}`, ''])),
    }),
    'an open string': `{"Image":"${'x'.repeat(15 * MIB)}`,
    'quotes behind backslashes': `{"${'\\"'.repeat(MIB)}`,
    'quotes and nothing else': '"'.repeat(4 * MIB),
  };
  for (const [what, body] of Object.entries(bodies))
    refused(await pingWhile(engine, () => post('/containers/create', body)), what);
});

test('heads with long runs of blanks, and names of them', async () => {
  for (const line of [
    `X:${' '.repeat(6000)}\u0001`,
    `X${' '.repeat(6000)}:`,
    `X: ${'\t '.repeat(3000)}\u007f`,
    `Content-Type: application/json${' ;'.repeat(3000)}`,
  ]) {
    await pingWhile(engine, async () => {
      const connection = await RawConnection.open(engine.socketPath);
      connection.write(
        `POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n${line}\r\nConnection: close\r\n\r\n{}`,
      );
      await connection.readThrough('HTTP/1.1 ').catch(() => undefined);
      connection.close();
    });
  }
});

test('log options, references and queries of the largest size', async () => {
  const long = (text: string): string => text.repeat(60_000 / text.length);
  for (const tag of [long('{{'), long('{{.Name'), long('{{.Name}}')]) {
    const body = JSON.stringify({
      Image: 'absent',
      HostConfig: { LogConfig: { Type: 'json-file', Config: { tag, 'max-size': long('1') } } },
    });
    refused(await pingWhile(engine, () => post('/containers/create', body)), 'log options');
  }
  for (const name of [long('a-'), long('a.'), long('a/'), long('__a')]) {
    refused(
      await pingWhile(engine, () => post('/containers/create', JSON.stringify({ Image: `${name}!` }))),
      'a reference',
    );
  }
  for (const query of [long('a&'), long('a=b&'), long('%41')]) {
    const reply = await pingWhile(engine, () =>
      call(engine.socketPath, 'GET', `/containers/json?${query.slice(0, 30_000)}`),
    );
    assert.ok(reply.status < 500, `a query gave ${reply.status}`);
  }
});

test('thousands of variables in one line of a build', async () => {
  const pairs = Array.from({ length: 4900 }, (_, at) => `v${at}=1`);
  const built = await pingWhile(engine, async () => {
    const body = tarOf([{ path: 'Dockerfile', content: `FROM scratch\nENV ${pairs.join(' ')}\nENV v7=2 v4899=3\n` }]);
    const headers = { 'Content-Type': 'application/x-tar' };
    return (await call(engine.socketPath, 'POST', '/build?t=many:variables', { body, headers })).text;
  });
  assert.ok(built.includes('Successfully tagged many:variables'), built.slice(-300));
  const { text } = await call(engine.socketPath, 'GET', '/images/many:variables/json');
  const { Config } = JSON.parse(text) as { Config: { Env: string[] } };
  const [path, ...own] = Config.Env;
  assert.match(path ?? '', /^PATH=/);
  pairs.splice(7, 1, 'v7=2');
  pairs.splice(4899, 1, 'v4899=3');
  assert.equal(own.join(' '), pairs.join(' '));
  assert.equal((await call(engine.socketPath, 'DELETE', '/images/many:variables')).status, 200);
});
