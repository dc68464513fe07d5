/** Copies of large files, under attack, and cut short. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { Copies, onDockerd } from '../support/copies.js';
import { describeTree } from '../support/describe-tree.js';
import { call, open } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { Swapping } from '../support/swapping.js';
import { waitFor } from '../support/wait.js';

const copies = new Copies();
/** The size of a sparse file. The long run: ENGINE_SPARSE_GB=5; sizes beyond 32 bits are in the tests of the reader. */
const SPARSE_BYTES = Number(process.env['ENGINE_SPARSE_GB'] ?? 0.5) * 2 ** 30;

/** So many copies race in each direction. The long run: ENGINE_RACE_ROUNDS=10000. */
const ROUNDS = Number(process.env['ENGINE_RACE_ROUNDS'] ?? 12);

describe('large files', () => {
  test('a large sparse file goes in with its holes, in constant memory', { skip: onDockerd }, async () => {
    await copies.ok('run', '-d', '--name', 'big', copies.image, 'sleep', '1000');
    const dir = copies.scratch('big');
    const file = join(dir, 'sparse');
    writeFileSync(file, 'begin');
    truncateSync(file, SPARSE_BYTES);
    const before = residentKib();
    await copies.ok('cp', file, 'big:/tmp/sparse');
    const [size, blocks] = (await copies.ok('exec', 'big', 'stat', '-c', '%s %b', '/tmp/sparse'))
      .split(' ')
      .map(Number);
    assert.equal(size, SPARSE_BYTES);
    assert.ok((blocks ?? 0) < 2048, `${blocks} blocks`);
    assert.ok(residentKib() - before < 300_000, 'memory');
    await copies.ok('rm', '-f', 'big');
  });

  test('every byte goes in, plain or compressed, in pieces of any size, and out to a reader that stalls', async () => {
    const content = randomBytes(20_000_000);
    const tar = tarOf([{ path: 'plain', content }]);
    await copies.running('whole', 'true');
    assert.equal((await copies.put('whole', '/', tar)).status, 200);
    assert.equal(
      (await copies.put('whole', '/', gzipSync(tarOf([{ path: 'packed', content }]), { level: 1 }))).status,
      200,
    );
    const outgoing = request({
      socketPath: copies.engine.socketPath,
      method: 'PUT',
      path: copies.url('whole', '/tmp'),
      agent: false,
    });
    for (let at = 0; at < tar.length; at += 777_777) outgoing.write(tar.subarray(at, at + 777_777));
    outgoing.end();
    const [reply] = (await once(outgoing, 'response')) as [IncomingMessage];
    reply.resume();
    assert.equal(reply.statusCode, 200);
    const digest = createHash('sha256').update(content).digest('hex');
    const sums = await copies.ok('exec', 'whole', 'sha256sum', '/plain', '/packed', '/tmp/plain');
    assert.deepEqual(
      sums
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[0]),
      [digest, digest, digest],
    );

    const { message } = await open(copies.engine.socketPath, 'GET', copies.url('whole', '/plain'));
    await sleep(200);
    const pieces: Buffer[] = [];
    for await (const piece of message) pieces.push(piece as Buffer);
    assert.ok(
      Buffer.concat(pieces)
        .subarray(512, 512 + content.length)
        .equals(content),
    );
    await copies.ok('rm', '-f', 'whole');
  });

  test('a client that leaves in the middle of either direction leaves nothing behind', async () => {
    await copies.running('leaver', 'head -c 50000000 /dev/zero >/big');
    const openFiles = (): number => readdirSync(`/proc/${copies.engine.pid}/fd`).length;
    await call(copies.engine.socketPath, 'GET', copies.url('leaver', '/etc'));
    const before = openFiles();
    for (let count = 0; count < 5; count++) {
      const reply = await open(copies.engine.socketPath, 'GET', copies.url('leaver', '/big'));
      await once(reply.message, 'data');
      reply.close();
      const outgoing = request({
        socketPath: copies.engine.socketPath,
        method: 'PUT',
        path: copies.url('leaver', '/tmp'),
        agent: false,
      });
      outgoing.on('error', () => undefined);
      outgoing.write(tarOf([{ path: 'part', content: Buffer.alloc(1_000_000, 1) }]).subarray(0, 500_000));
      await new Promise((resolve) => setTimeout(resolve, 50));
      outgoing.destroy();
    }
    await waitFor(
      () => `descriptors to be closed: ${openFiles()}, ${before} before`,
      () => openFiles() <= before + 3,
    );
    assert.equal((await call(copies.engine.socketPath, 'GET', copies.url('leaver', '/etc'))).status, 200);
    await copies.ok('rm', '-f', 'leaver');
  });

  function residentKib(): number {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${copies.engine.pid}/status`, 'utf8'))?.[1]);
  }
});

describe('races', () => {
  test(
    'a container that swaps directories and links never gets the daemon to touch the host',
    { timeout: 240_000 + ROUNDS * 200 },
    async () => {
      const canary = copies.scratch('canary');
      writeFileSync(join(canary, 'secret'), 'secret of the host');
      const before = JSON.stringify([describeTree(canary), statSync(canary).mtimeMs, statSync(canary).mode]);
      // Inside the container the same path holds something harmless, for a link that leads there.
      await copies.running(
        'racer',
        `mkdir -p ${canary} /r/dir /r/side; echo inner >${canary}/secret; echo plain >/r/dir/secret; ` +
          `ln -s ${canary} /r/link; ln -s ${canary}/secret /r/side/flink; echo f >/r/side/f`,
      );
      const pid = Number(await copies.ok('inspect', '-f', '{{.State.Pid}}', 'racer'));
      const swappings = [
        await Swapping.begin(pid, [
          { do: 'move', path: '/r/dir', to: '/r/x' },
          { do: 'move', path: '/r/link', to: '/r/dir' },
          { do: 'move', path: '/r/x', to: '/r/link' },
          // A copy may have made the directory anew meanwhile, and nothing could be moved any more.
          { do: 'remove', path: '/r/x' },
          { do: 'move', path: '/r/side/f', to: '/r/side/y' },
          { do: 'move', path: '/r/side/flink', to: '/r/side/f' },
          { do: 'move', path: '/r/side/y', to: '/r/side/flink' },
        ]),
        await Swapping.begin(pid, [
          { do: 'remove', path: '/r/dir/in' },
          { do: 'link', path: '/r/dir/in', to: '/' },
          { do: 'remove', path: '/r/dir/in' },
          { do: 'make', path: '/r/dir/in' },
        ]),
      ];
      const tar = tarOf([
        { path: 'dir/', type: 'directory', mode: 0o777, uid: 99, mtime: 5 },
        { path: 'dir/in/', type: 'directory', mode: 0o777, uid: 99 },
        { path: 'dir/in/planted', content: 'planted', uid: 99 },
        { path: 'dir/secret', content: 'overwritten', uid: 99 },
        { path: 'side/f', content: 'overwritten', mode: 0o777, uid: 99 },
        { path: 'dir/in/node', type: 'fifo', mode: 0o777, uid: 99 },
      ]);
      let reads = 0;
      let writes = 0;
      const reading = async (): Promise<void> => {
        while (reads < ROUNDS) {
          const reply = await call(
            copies.engine.socketPath,
            'GET',
            copies.url('racer', reads % 2 === 0 ? '/r' : '/r/dir/'),
          );
          assert.equal(reply.body.includes('secret of the host'), false, 'the host leaked');
          reads++;
        }
      };
      const writing = async (): Promise<void> => {
        while (writes < ROUNDS) {
          if ((await copies.put('racer', '/r', tar)).status === 200) writes++;
        }
      };
      await Promise.all([reading(), reading(), writing(), writing()]);
      for (const swapping of swappings) await swapping.end();
      assert.equal(JSON.stringify([describeTree(canary), statSync(canary).mtimeMs, statSync(canary).mode]), before);
      assert.equal(existsSync('/planted') || existsSync('/node'), false);
      assert.equal(lstatSync('/').uid, 0);
      await copies.ok('rm', '-f', 'racer');
    },
  );

  test('copies while the container starts and stops end with the whole file or with an error', async () => {
    await copies.ok('create', '--name', 'flip', copies.image, 'sh', '-c', 'sleep 0.05');
    const flipping = async (): Promise<void> => {
      for (let start = 0; start < 8; start++) await copies.cli('start', '-a', 'flip');
    };
    const copying = async (): Promise<void> => {
      for (let copy = 0; copy < 40; copy++) {
        const reply = await call(copies.engine.socketPath, 'GET', copies.url('flip', '/etc/passwd'));
        assert.deepEqual([reply.status, reply.body.length], [200, 2048], reply.text);
      }
    };
    await Promise.all([flipping(), copying()]);
    await copies.ok('rm', '-f', 'flip');
  });
});

test('a copy under way does not outlive a daemon that is killed', { skip: onDockerd }, async () => {
  await copies.running('killed', 'head -c 50000000 /dev/zero >/big');
  const reply = await open(copies.engine.socketPath, 'GET', copies.url('killed', '/big'));
  await once(reply.message, 'data');
  reply.message.on('error', () => undefined);
  await copies.engine.stop('SIGKILL');
  await copies.engine.start();
  assert.equal((await copies.stat('killed', '/big')).size, 50_000_000);
  await copies.ok('rm', '-f', 'killed');
});
