/** The audit lines of a real daemon: one for each call that changes something, with who it was. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmod, chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';

interface Line {
  readonly msg: string;
  readonly level: string;
  readonly req: string;
  readonly uid?: number;
  readonly gid?: number;
  readonly client_pid?: number;
  readonly address?: string;
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly status: number;
  readonly result: string;
  readonly dur_ms: number;
}

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let mark = 0;

before(async () => {
  ({ engine, image } = await startEngineWithRegistry(
    cleanup,
    engined({ args: ['--log-format', 'json'], file: { features: { audit: true } } }),
  ));
});
after(() => cleanup.run());

/** Audit lines since the last call. */
async function lines(count: number): Promise<Line[]> {
  const found = (): Line[] =>
    engine.log
      .slice(mark)
      .split('\n')
      .filter((line) => line.endsWith('}'))
      .map((line) => JSON.parse(line) as Line)
      .filter(({ msg }) => msg === 'audit');
  await waitFor(
    () => `${count} audit lines; there are ${JSON.stringify(found())}`,
    () => found().length >= count,
  );
  const result = found();
  mark = engine.log.length;
  return result;
}

test('each call that changes something leaves one line, reads leave none', async () => {
  const [pulled] = await lines(1);
  assert.deepEqual([pulled?.path, pulled?.query, pulled?.status], ['/images/create', { fromImage: image }, 200]);
  await call(engine.socketPath, 'GET', '/containers/json');
  await call(engine.socketPath, 'HEAD', '/_ping');
  await dockerOk(engine, ['run', '--name', 'audited', image, 'true']);
  await dockerOk(engine, ['rm', 'audited']);
  const found = await lines(5);
  const calls = found.map(({ method, path, status, result }) => [
    method,
    path.replace(/[0-9a-f]{64}/, 'ID'),
    status,
    result,
  ]);
  assert.deepEqual(
    calls.toSorted((a, b) => a.join(' ').localeCompare(b.join(' '))),
    [
      ['DELETE', '/containers/audited', 204, 'done'],
      ['POST', '/containers/create', 201, 'done'],
      ['POST', '/containers/ID/attach', 101, 'done'],
      ['POST', '/containers/ID/start', 204, 'done'],
      ['POST', '/containers/ID/wait', 200, 'done'],
    ],
  );
  for (const { level, uid, gid, client_pid: pid, req, dur_ms: ms } of found) {
    assert.deepEqual([level, uid, gid], ['info', process.getuid?.(), process.getgid?.()]);
    assert.ok(pid !== undefined && pid > 0 && /^r\d+$/.test(req) && ms > 0);
  }
  assert.equal(new Set(found.map(({ req }) => req)).size, found.length);
});

test('a refused, a failed and an abandoned call are told apart', async () => {
  await call(engine.socketPath, 'POST', '/containers/absent/start');
  await call(engine.socketPath, 'POST', '/containers/absent/resize?h=x&w=1');
  // The CLI would wait for it too, and that line may come at any time.
  const id = await engineOk(engine, ['run', '-d', image, 'sleep', '1000']);
  await lines(4);
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(`POST /containers/${id}/stop?t=30 HTTP/1.1\r\nHost: x\r\n\r\n`);
  await call(engine.socketPath, 'GET', `/containers/${id}/json`);
  connection.close();
  const [left] = await lines(1);
  assert.deepEqual(
    [left?.path, left?.query, left?.status, left?.result],
    [`/containers/${id}/stop`, { t: '30' }, 499, 'client left'],
  );
  await call(engine.socketPath, 'DELETE', `/containers/${id}?force=1&v=1`);
  const [removed] = await lines(1);
  assert.deepEqual([removed?.query, removed?.result], [{ force: '1', v: '1' }, 'done']);
});

test('the line names the user who called, not the daemon', async () => {
  await chmod(engine.dir, 0o755);
  await chown(engine.socketPath, 0, 12345);
  const script =
    "fetch=require('node:http').request({socketPath:process.argv[1],method:'POST'," +
    "path:'/containers/nobodys/start'},r=>r.resume());fetch.end()";
  await promisify(execFile)('setpriv', [
    '--reuid',
    '12344',
    '--regid',
    '12345',
    '--clear-groups',
    process.execPath,
    '-e',
    script,
    engine.socketPath,
  ]);
  const [line] = await lines(1);
  assert.deepEqual(
    [line?.uid, line?.gid, line?.path, line?.status, line?.result],
    [12344, 12345, '/containers/nobodys/start', 404, 'refused'],
  );
});

test('secrets and line ends do not get into the log', async () => {
  await call(
    engine.socketPath,
    'POST',
    '/images/create?fromSrc=http%3A%2F%2Fu%3Ahunter2%40127.0.0.1%3A9%2Fx.tar&repo=r',
    { headers: { 'X-Registry-Auth': 'hunter2' } },
  );
  await call(engine.socketPath, 'POST', '/containers/a%0Alevel%3Dinfo%20msg%3Daudit/start');
  await call(engine.socketPath, 'POST', `/containers/${'x'.repeat(20_000)}/start`);
  const [imported, broken, long] = await lines(3);
  assert.deepEqual(imported?.query, { repo: 'r' });
  assert.equal(broken?.path, '/containers/a\nlevel=info msg=audit/start');
  assert.ok((long?.path.length ?? 0) < 600);
  assert.doesNotMatch(engine.log, /hunter2/);
});

test('a reload turns it off', async () => {
  await writeFile(join(engine.dir, 'daemon.json'), '{}');
  await call(engine.socketPath, 'POST', '/engine/config/reload');
  // The line of the reload itself may come behind its reply.
  await lines(1);
  await call(engine.socketPath, 'POST', '/containers/absent/start');
  await call(engine.socketPath, 'GET', '/_ping');
  assert.deepEqual(await lines(0), []);
});
