/** Several daemons on one host: they do not touch each other, and cannot share what is one's own. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { request } from 'node:http';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { startSeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { pullOk } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const cleanup = new Cleanup();

after(() => cleanup.run());

interface Network {
  readonly IPAM: { readonly Config: readonly { readonly Gateway: string }[] };
}

const gatewayOf = async (engine: Engine): Promise<string> =>
  (await callJson<Network>(engine.socketPath, 'GET', '/networks/bridge')).IPAM.Config[0]?.Gateway ??
  assert.fail('no gateway');

test('three daemons side by side, one of which ends', async () => {
  const engines: Engine[] = [];
  try {
    // One after the other: the next one sees which subnets are taken, and what is there before it.
    for (let n = 0; n < 3; n++) {
      const engine = await Engine.start(await withImage(engined()));
      engines.push(engine);
      await engineOk(engine, ['run', '-d', '--name', 'same-name', '--stop-timeout', '1', SEEDED_IMAGE, 'sleep', '600']);
    }
    const gateways = await Promise.all(engines.map(gatewayOf));
    assert.equal(new Set(gateways).size, 3);
    for (const engine of engines) assert.equal(await engineOk(engine, ['ps', '--format', '{{.Names}}']), 'same-name');
    const reaches = (engine: Engine, n: number): Promise<string> =>
      engineOk(engine, ['exec', 'same-name', 'ping', '-c', '1', '-w', '5', gateways[n] ?? '']);

    // Last in, first out: each is checked for leftovers against what was there when it came.
    const [first, second, third] = engines as [Engine, Engine, Engine];
    await third.close();
    for (const [n, engine] of [first, second].entries()) {
      await reaches(engine, n);
      assert.equal(await engineOk(engine, ['run', '--rm', SEEDED_IMAGE, 'echo', 'still here']), 'still here');
    }
    await second.stop('SIGKILL');
    await reaches(first, 0);
    await second.start();
    await reaches(second, 1);
    await second.close();
    await reaches(first, 0);
    await first.close();
    engines.length = 0;
  } finally {
    for (const engine of engines) await engine.discard();
  }
});

test('what belongs to a running daemon is refused to another one', async () => {
  const engine = await Engine.start(engined());
  const other = await mkdtemp(join(tmpdir(), 'engined-other-'));
  try {
    const second = async (flag: string, value: string): Promise<string> => {
      const values: Record<string, string> = {
        'config-file': join(engine.dir, 'daemon.json'),
        host: `unix://${join(other, 'engine.sock')}`,
        bridge: 'none',
        'data-root': join(other, 'data'),
        'exec-root': join(other, 'exec'),
        pidfile: join(other, 'pid'),
        [flag]: value,
      };
      const [program = ''] = engined().command(other, '');
      const failure = await promisify(execFile)(
        program,
        Object.entries(values).map(([name, given]) => `--${name}=${given}`),
        { timeout: 20_000 },
      ).then(
        () => assert.fail(`a second daemon with the same ${flag} ran`),
        (error: unknown) => error as { code: number; stderr: string },
      );
      assert.equal(failure.code, 1, failure.stderr);
      return failure.stderr.trimEnd().split('\n').at(-1) ?? '';
    };
    const link = join(other, 'link');
    await symlink(join(engine.dir, 'data'), link);
    for (const [flag, path] of [
      ['data-root', join(engine.dir, 'data')],
      ['data-root', link],
      ['exec-root', join(engine.dir, 'exec')],
    ] as const) {
      const line = await second(flag, path);
      assert.ok(
        line.includes(
          `engined cannot run: ${flag} ${path} is in use by process ${engine.pid}: stop it, ` +
            `or give this daemon a ${flag} of its own`,
        ),
        line,
      );
    }
    assert.ok(
      (await second('pidfile', join(engine.dir, 'engine.pid'))).includes(
        `process ${engine.pid} named by the pidfile ${join(engine.dir, 'engine.pid')} is running`,
      ),
    );
    assert.match(
      await second('host', `unix://${engine.socketPath}`),
      /engined cannot run: cannot listen on .*: another process is listening there/,
    );

    assert.equal(
      (await readFile(join(engine.dir, 'engine.pid'), 'utf8')).trim(),
      String(engine.pid),
      'the first one is as it was',
    );
    assert.equal(await engineOk(engine, ['version', '--format', '{{.Server.Os}}']), 'linux');
    await engine.stop('SIGKILL');
    assert.ok(existsSync(join(engine.dir, 'engine.pid')));
    await engine.start();
    await engine.close();
  } finally {
    await engine.discard();
    await rm(other, { recursive: true });
  }
});

test('data-root and the directory of temporary files may be symbolic links', async () => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'engined-links-')));
  try {
    for (const name of ['data', 'tmp']) {
      await mkdir(join(dir, name));
      await symlink(join(dir, name), join(dir, `${name}-link`));
    }
    const engine = await Engine.start(
      engined({ args: ['--data-root', join(dir, 'data-link')], env: { ENGINE_TMPDIR: join(dir, 'tmp-link') } }),
    );
    try {
      const registry = await startSeededRegistry();
      cleanup.add(() => registry.stop());
      await pullOk(engine, registry.reference);
      assert.equal(await engineOk(engine, ['run', '--name', 'one', registry.reference, 'echo', 'hello']), 'hello');
      assert.equal(await engineOk(engine, ['info', '--format', '{{.DockerRootDir}}']), join(dir, 'data'));
      await engine.stop();
      assert.deepEqual(await readdir(join(dir, 'tmp')), [], 'nothing is left');
      await engine.start();
      assert.equal(await engineOk(engine, ['logs', 'one']), 'hello');
      // An archive that is still being sent lies there.
      const sending = request({
        socketPath: engine.socketPath,
        method: 'POST',
        path: '/images/create?fromSrc=-&repo=x',
        headers: { 'content-type': 'application/x-tar', 'transfer-encoding': 'chunked' },
      });
      sending.on('error', () => undefined);
      sending.write(Buffer.alloc(100_000));
      await waitFor('the archive', async () =>
        (await readdir(join(dir, 'tmp'), { recursive: true })).some((name) => name.includes('/import-')),
      );
      sending.destroy();
      await waitFor(
        'its end',
        async () => !(await readdir(join(dir, 'tmp'), { recursive: true })).some((name) => name.includes('/import-')),
      );
      await engineOk(engine, ['rm', 'one']);
    } finally {
      await engine.close();
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('asked a third time, the daemon ends at once', async () => {
  const engine = await Engine.start(await withImage(engined()));
  try {
    await engineOk(engine, ['run', '-d', '--stop-timeout', '30', SEEDED_IMAGE, 'sleep', '600']);
    const { pid } = engine;
    process.kill(pid, 'SIGTERM');
    await waitFor('the stop to begin', () => engine.log.includes('msg=stopping'));
    process.kill(pid, 'SIGTERM');
    await waitFor('the warning', () => engine.log.includes('a third signal ends the daemon at once'));
    assert.equal(await engine.stop('SIGTERM'), 1);
  } finally {
    await engine.discard();
  }
});
