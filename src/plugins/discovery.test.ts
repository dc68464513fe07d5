import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { findPlugin } from './discovery.js';

let dir = '';
const places = (): { sockets: string[]; files: string[] } => ({
  sockets: [join(dir, 'run')],
  files: [join(dir, 'etc'), join(dir, 'lib')],
});

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'plugins-'));
  for (const name of ['run/deep', 'etc/nested', 'lib']) await mkdir(join(dir, name), { recursive: true });
});
after(() => rm(dir, { recursive: true }));

async function listenOn(path: string): Promise<() => void> {
  const server = createServer().listen(path);
  await once(server, 'listening');
  return () => void server.close();
}

const put = (path: string, content: unknown): Promise<void> =>
  writeFile(join(dir, path), typeof content === 'string' ? content : JSON.stringify(content));

test('a socket is found by its name, also one directory down, and goes before files', async () => {
  const stops = [await listenOn(join(dir, 'run/plain.sock')), await listenOn(join(dir, 'run/deep/deep.sock'))];
  await put('etc/plain.spec', 'tcp://127.0.0.1:1');
  assert.deepEqual(await findPlugin('plain', places()), {
    name: 'plain',
    address: { kind: 'unix', path: join(dir, 'run/plain.sock') },
  });
  assert.deepEqual((await findPlugin('deep', places())).address, {
    kind: 'unix',
    path: join(dir, 'run/deep/deep.sock'),
  });
  for (const stop of stops) stop();
});

test('files say where a plugin listens', async () => {
  const tls = { insecureSkipVerify: false, caFile: '', certFile: '', keyFile: '' };
  const cases: [file: string, content: unknown, address: unknown][] = [
    ['etc/a.spec', 'unix:///run/a.sock\n', { kind: 'unix', path: '/run/a.sock' }],
    ['etc/b.spec', 'tcp://localhost:8080', { kind: 'http', host: 'localhost', port: 8080 }],
    ['etc/nested/nested.spec', 'http://[::1]', { kind: 'http', host: '::1', port: 80 }],
    [
      'lib/c.json',
      { Name: 'c', Addr: 'https://example.com/path' },
      { kind: 'https', host: 'example.com', port: 443, tls },
    ],
    [
      'lib/d.json',
      { Addr: 'tcp://h:1', TLSConfig: { CAFile: '/ca', InsecureSkipVerify: true } },
      { kind: 'https', host: 'h', port: 1, tls: { ...tls, caFile: '/ca', insecureSkipVerify: true } },
    ],
  ];
  for (const [file, content, address] of cases) {
    await put(file, content);
    const name = /([a-z]+)\.[a-z]+$/.exec(file)?.[1] ?? '';
    assert.deepEqual(await findPlugin(name, places()), { name, address }, file);
    assert.deepEqual(await findPlugin(join(dir, file), places()), { name, address }, 'by its path');
  }
});

test('what cannot be a plugin is refused by name', async () => {
  const wrong: [file: string, content: unknown, reason: RegExp][] = [
    ['etc/w.spec', 'file:///etc/passwd', /no address/],
    ['etc/w.spec', 'unix://relative', /no absolute path/],
    ['etc/w.spec', '', /no address/],
    ['etc/w.json', '{', /is not JSON/],
    ['etc/w.json', [], /must be an object/],
    ['etc/w.json', { Addr: 1 }, /Addr must be a string/],
    ['etc/w.json', { Addr: 'tcp://h:1', TLSConfig: { CAFile: 1 } }, /TLSConfig\.CAFile must be a string/],
    [
      'etc/w.json',
      { Addr: 'tcp://h:1', TLSConfig: { InsecureSkipVerify: 'no' } },
      /InsecureSkipVerify must be true or false/,
    ],
  ];
  for (const [file, content, reason] of wrong) {
    await put(file, content);
    await assert.rejects(
      findPlugin('w', places()),
      (error) => isEngineError(error, 'invalid') && reason.test(error.message),
    );
    await rm(join(dir, file));
  }
  for (const name of ['../w', 'a/b', '', '.', '-x'])
    await assert.rejects(findPlugin(name, places()), (error) => isEngineError(error, 'invalid'), name);
  for (const name of ['absent', '/absent.spec'])
    await assert.rejects(findPlugin(name, places()), (error) => isEngineError(error, 'not-found'), name);
});
