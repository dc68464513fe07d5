/** `UsernsMode: auto`: containers with users of their own; whose their files are, here and in archives. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { engineOk } from '../support/engine-commands.js';
import { call } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { FIRST, idMap, OwnUsersEngine } from '../support/own-users-engine.js';
import { IMAGE, idsOf, owners } from '../support/users-image.js';
import { waitFor } from '../support/wait.js';

/** 50 are right, too, but take a minute. */
const COUNT = Number(process.env['OWN_USERS_COUNT'] ?? 4);
const SIZE = 65_536;
const own = new OwnUsersEngine(SIZE * (COUNT + 1));
const socket = (): string => own.engine.socketPath;
const stored = (): string => join(own.engine.dir, 'data/overlay2/writable');
const files = (path: string): string[] => {
  const { uid, gid } = lstatSync(path);
  return [`${uid}:${gid}`];
};

async function firstIds(ids: readonly string[]): Promise<number[]> {
  const pids = await Promise.all(ids.map(async (id) => (await own.inspect(id)).State.Pid));
  return pids.map((pid) => {
    assert.deepEqual(idMap(pid, 'uid'), idMap(pid, 'gid'));
    const [first, count] = idMap(pid, 'uid');
    assert.equal(idsOf(pid), `${first}:${first}`);
    assert.equal(count, SIZE);
    return first;
  });
}

function assertApart(firsts: readonly number[]): void {
  const sorted = firsts.toSorted((a, b) => a - b);
  sorted.forEach((first, index) => {
    assert.ok(first >= FIRST && first + SIZE <= FIRST + own.count, `${first}`);
    assert.ok(index === 0 || first >= (sorted[index - 1] ?? 0) + SIZE, sorted.join(' '));
  });
}

describe('users of their own', () => {
  test('no two containers share an id, each has root; freed ids are given again; an empty pool is told', async () => {
    const ids = await Promise.all(Array.from({ length: COUNT }, () => own.start('id -u; exec sleep 6000')));
    const firsts = await firstIds(ids);
    assertApart(firsts);
    for (const id of ids) await waitFor('root', async () => (await own.output(id)) === '0');
    assert.equal((await own.inspect(ids[0] ?? '')).HostConfig.UsernsMode, 'auto');
    const last = await own.create('true', { UsernsMode: `auto:size=${SIZE - 1024}` });
    const refused = await call(socket(), 'POST', '/containers/create', {
      json: { Image: IMAGE, HostConfig: { UsernsMode: 'auto:size=1025' } },
    });
    assert.equal(refused.status, 503);
    assert.match(
      refused.text,
      /no 1025 free ids are left in the ranges of engined in \/etc\/subuid: remove containers or/,
    );
    assert.equal(readdirSync(stored()).length, COUNT + 1);
    assert.equal(
      await own.run('cat /proc/self/uid_map', { UsernsMode: 'auto:size=1024' }),
      `         0 ${FIRST + own.count - 1024}       1024`,
    );
    await own.json('DELETE', `/containers/${ids[0]}?force=1`);
    const next = await own.start('exec sleep 6000');
    assert.deepEqual(await firstIds([next]), [firsts[0]]);
    for (const id of [...ids.slice(1), next, last]) await own.json('DELETE', `/containers/${id}?force=1`);
  });

  test('bad modes, and what cannot be shared, are refused by name; so are ranges with ids of others', async () => {
    const other = await own.create('true', { UsernsMode: '' });
    for (const [host, message] of [
      [{ UsernsMode: 'auto:' }, 'invalid user namespace mode: auto:: unknown option ""; auto has size=N'],
      [
        { UsernsMode: 'auto:uidmapping=0:0:1' },
        'invalid user namespace mode: auto:uidmapping=0:0:1: unknown option "uidmapping=0:0:1"; auto has size=N',
      ],
      [
        { UsernsMode: 'auto:size=1023' },
        'invalid user namespace mode: auto:size=1023: size must be a number from 1024 to 16777216',
      ],
      [
        { UsernsMode: 'auto:size=1e3' },
        'invalid user namespace mode: auto:size=1e3: size must be a number from 1024 to 16777216',
      ],
      [{ UsernsMode: 'automatic' }, 'invalid user namespace mode: automatic'],
      [
        { UsernsMode: 'auto', NetworkMode: 'host' },
        "cannot share the host's network namespace when user namespaces are enabled",
      ],
      [
        { UsernsMode: 'auto', PidMode: `container:${other}` },
        `conflicting options: user namespace mode auto and PID mode container:${other}`,
      ],
      [{ UsernsMode: 'auto', IpcMode: 'host' }, 'conflicting options: user namespace mode auto and IPC mode host'],
    ] as const) {
      const reply = await call(socket(), 'POST', '/containers/create', { json: { Image: IMAGE, HostConfig: host } });
      assert.deepEqual([reply.status, JSON.parse(reply.text)], [400, { message }]);
    }
    for (const [ranges, message] of [
      ['', /no range of engined in \/etc\/subuid: add a line such as engined:\d+:\d+/],
      [
        'engined:100000:70000\nbob:165536:65536\n',
        /\/etc\/subuid: engined:100000:70000 holds ids of bob: give it others/,
      ],
      ['engined:1:65536\n', /engined:1:65536 holds ids of \w+: give it others/],
      ['engined:0:65536\n', /engined:0:65536 is no range of ids/],
    ] as const) {
      own.setRanges(ranges);
      const reply = await call(socket(), 'POST', '/containers/create', {
        json: { Image: IMAGE, HostConfig: { UsernsMode: 'auto' } },
      });
      assert.equal(reply.status, 503, reply.text);
      assert.match(reply.text, message);
    }
    own.setRanges(`engined:${FIRST}:${own.count}\n`);
    await own.json('DELETE', `/containers/${other}`);
    assert.deepEqual(readdirSync(stored()), []);
  });

  test('files: volumes, binds, images, shared memory, and those of the daemon are the container’s', async () => {
    const bound = join(own.temp, 'bound');
    mkdirSync(bound);
    writeFileSync(join(bound, 'of-the-host'), 'x');
    const Mounts = [
      { Type: 'image', Source: IMAGE, Target: '/image' },
      { Type: 'volume', Source: 'fresh', Target: '/part', VolumeOptions: { Subpath: 'sub' } },
    ];
    const Binds = ['fresh:/fresh', 'filled:/content', `${bound}:/bound`, `${own.temp}/made:/made`];
    assert.equal(await own.run('mkdir /fresh/sub; chown 1500:7 /fresh/sub', { Binds: ['fresh:/fresh'] }), '');
    const id = await own.start(
      'touch /part/f; chown 1000:1000 /part/f; touch /made/f /dev/shm/f /t/f;' +
        'stat -c "%n %u:%g" / /bin/busybox /fresh /fresh/sub /fresh/sub/f /content/own /content/root ' +
        '/bound/of-the-host ' +
        '/made /image/content/own /image/bin /etc/hosts /etc/resolv.conf /dev/shm /t; hostname >/etc/hostname; ' +
        'ip addr show eth0 | grep -c inet; exec sleep 6000',
      { Binds, Mounts, Tmpfs: { '/t': '' }, IpcMode: 'shareable' },
      { Healthcheck: { Test: ['CMD-SHELL', 'test "$(id -u)" = 0'], Interval: 100_000_000 } },
    );
    const lines = [
      '/ 0:0',
      '/bin/busybox 0:0',
      '/fresh 0:0',
      '/fresh/sub 1500:7',
      '/fresh/sub/f 1000:1000',
      '/content/own 1500:50',
      '/content/root 0:0',
      '/bound/of-the-host 65534:65534',
      '/made 0:0',
      '/image/content/own 1500:50',
      '/image/bin 0:0',
      '/etc/hosts 0:0',
      '/etc/resolv.conf 0:0',
      '/dev/shm 0:0',
      '/t 0:0',
      '1',
    ];
    assert.deepEqual(
      (
        await waitFor('the output', async () => {
          const output = await own.output(id);
          return output.endsWith('\n1') ? output : undefined;
        })
      ).split('\n'),
      lines,
    );
    await waitFor('health', async () => (await own.inspect(id)).State.Health?.Status === 'healthy');
    const volumes = join(own.engine.dir, 'data/volumes');
    assert.deepEqual(files(join(volumes, 'fresh/_data/sub/f')), ['1000:1000']);
    assert.deepEqual(files(join(volumes, 'filled/_data/own')), ['1500:50']);
    const [first] = await firstIds([id]);
    assert.deepEqual(files(join(own.temp, 'made/f')), [`${first}:${first}`]);
    // Nobody else may come to a root file system while a runtime looks at it, nor to the data.
    const roots = join(own.engine.dir, 'exec/roots');
    assert.deepEqual(readdirSync(roots), [id]);
    assert.deepEqual(readdirSync(join(roots, id, 'rootfs')), []);
    assert.equal(lstatSync(join(roots, id)).mode & 0o7777, 0o710);
    assert.equal(lstatSync(join(own.engine.dir, 'data')).mode & 0o007, 0);
    // A container with the host's users has the same volume.
    assert.equal(await own.run('stat -c %u:%g /v/sub/f', { UsernsMode: '', Binds: ['fresh:/v'] }), '1000:1000');
    await own.json('DELETE', `/containers/${id}?force=1`);
    assert.deepEqual(readdirSync(roots), []);
    for (const name of ['fresh', 'filled']) await own.json('DELETE', `/volumes/${name}`);
  });

  test('archives in and out, exports, commits and changes have the ids that the container sees', async () => {
    const body = tarOf([
      { path: 'in/', type: 'directory', uid: 1000, gid: 1000 },
      { path: 'in/file', content: 'x', uid: 1500, gid: 7, mode: 0o4711 },
    ]);
    const headers = { 'Content-Type': 'application/x-tar' };
    const make = 'mkdir /made; touch /made/f; chown 3:4 /made/f; rm /types/empty; echo made; exec sleep 6000';
    const running = await own.start(make);
    await waitFor('its files', async () => (await own.output(running)) === 'made');
    const stopped = await own.create('true', {
      Binds: ['vol:/v'],
      Mounts: [{ Type: 'image', Source: IMAGE, Target: '/image' }],
    });
    for (const [id, place] of [
      [running, '/'],
      [stopped, '/'],
      [stopped, '/v/'],
    ] as const) {
      const reply = await call(socket(), 'PUT', `/containers/${id}/archive?path=${place}`, { body, headers });
      assert.equal(reply.status, 200, reply.text);
      const out = await call(socket(), 'GET', `/containers/${id}/archive?path=${place}in`);
      assert.deepEqual(owners(out.body), ['in/ 1000:1000', 'in/file 1500:7'], place);
    }
    const below = await call(socket(), 'GET', `/containers/${stopped}/archive?path=/image/content`);
    assert.ok(owners(below.body).includes('content/own 1500:50'));
    assert.deepEqual(files(join(own.engine.dir, 'data/volumes/vol/_data/in/file')), ['1500:7']);
    const changes = await own.json<{ Path: string; Kind: number }[]>('GET', `/containers/${running}/changes`);
    assert.deepEqual(changes.map(({ Path, Kind }) => `${'CAD'[Kind]} ${Path}`).sort(), [
      'A /in',
      'A /in/file',
      'A /made',
      'A /made/f',
      'C /types',
      'D /types/empty',
    ]);
    const exported = owners((await call(socket(), 'GET', `/containers/${running}/export`)).body);
    for (const line of ['in/file 1500:7', 'made/f 3:4', 'content/own 1500:50', 'bin/busybox 0:0', 'etc/hosts 0:0'])
      assert.ok(exported.includes(line), line);
    await own.json('POST', `/commit?container=${running}&repo=test/own&tag=1`);
    const stat = 'stat -c %u:%g / /made/f /in/file /content/own; test -e /types/empty || echo gone';
    for (const UsernsMode of ['', 'auto'])
      assert.equal(await own.run(stat, { UsernsMode }, { Image: 'test/own:1' }), '0:0\n3:4\n1500:7\n1500:50\ngone');
    for (const id of [running, stopped]) await own.json('DELETE', `/containers/${id}?force=1`);
    await own.json('DELETE', '/images/test/own:1');
    await own.json('DELETE', '/volumes/vol');
  });

  test('copies that go on at the same time make files of the users of their containers', async (t) => {
    const ids = await Promise.all(
      Array.from({ length: 3 }, () => own.start('exec sleep 6000', { Tmpfs: { '/memory': '' } })),
    );
    const firsts = await firstIds(ids);
    const path = (id: string): string => `/containers/${id}/archive?path=/memory`;
    const placeOf = async (id: string, name: string): Promise<string> =>
      join('/proc', `${(await own.inspect(id)).State.Pid}`, 'root/memory', name);
    const content = 'x'.repeat(1000);
    const body = tarOf(['first', 'second', 'third'].map((name) => ({ path: name, content, uid: 3, gid: 4 })));
    const begin = 512 + content.length;
    const [slow = '', ...others] = ids;
    const upload = request({ socketPath: socket(), method: 'PUT', path: path(slow), agent: false });
    t.after(() => upload.destroy());
    const replied = once(upload, 'response') as Promise<[IncomingMessage]>;
    upload.write(body.subarray(0, begin));
    const first = await placeOf(slow, 'first');
    await waitFor('the first file', () => existsSync(first));
    for (const id of others) assert.equal((await call(socket(), 'PUT', path(id), { body })).status, 200);
    upload.end(body.subarray(begin));
    const [reply] = await replied;
    assert.equal(reply.statusCode, 200, await text(reply));
    for (const [index, id] of ids.entries())
      for (const name of ['first', 'second', 'third'])
        assert.deepEqual(files(await placeOf(id, name)), [`${(firsts[index] ?? 0) + 3}:${(firsts[index] ?? 0) + 4}`]);
    for (const id of ids) await own.json('DELETE', `/containers/${id}?force=1`);
  });

  test('a daemon that is killed at any instant leaves no ids taken, nor gives any twice', async () => {
    const kept = await own.start('exec sleep 6000', { UsernsMode: 'auto' });
    const held = await firstIds([kept]);
    for (const delayMs of [5, 40, 120]) {
      const made = Promise.allSettled(Array.from({ length: COUNT }, () => own.start('exec sleep 6000')));
      // The instants are meant to differ; nothing is waited for.
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      await own.engine.stop('SIGKILL');
      await made;
      await own.engine.start();
      assert.deepEqual(await firstIds([kept]), held);
      const all = await own.json<{ Id: string; State: string }[]>('GET', '/containers/json?all=1');
      assert.deepEqual(readdirSync(stored()).sort(), all.map(({ Id }) => Id).sort());
      assert.doesNotMatch(readFileSync('/proc/self/mountinfo', 'utf8'), new RegExp(`${own.engine.dir}/exec/roots`));
      for (const { Id } of all) if (Id !== kept) await own.json('DELETE', `/containers/${Id}?force=1`);
    }
    const again = await Promise.all(Array.from({ length: COUNT }, () => own.start('exec sleep 6000')));
    assertApart([...held, ...(await firstIds(again))]);
  });

  test('with userns-remap=auto each container has its own, over the images that are there', async () => {
    const before = readdirSync(join(own.engine.dir, 'data'));
    for (const { Id } of await own.json<{ Id: string }[]>('GET', '/containers/json?all=1'))
      await own.json('DELETE', `/containers/${Id}?force=1`);
    await own.engine.stop();
    own.args.push('--userns-remap=auto');
    await own.engine.start();
    const ids = await Promise.all(['', '', 'auto'].map((UsernsMode) => own.start('exec sleep 6000', { UsernsMode })));
    assertApart(await firstIds(ids));
    assert.equal((await own.inspect(ids[0] ?? '')).HostConfig.UsernsMode, '');
    assert.equal(await engineOk(own.engine, ['exec', ids[0] ?? '', 'stat', '-c', '%u:%g', '/content/own']), '1500:50');
    assert.match(await own.run('cat /proc/self/uid_map', { UsernsMode: 'host' }), /^ +0 +0 +4294967295$/);
    const { SecurityOptions } = await own.json<{ SecurityOptions: string[] }>('GET', '/info');
    assert.ok(SecurityOptions.includes('name=userns'), SecurityOptions.join(' '));
    for (const host of [{ Privileged: true }, { NetworkMode: `container:${ids[0]}` }]) {
      const reply = await call(socket(), 'POST', '/containers/create', { json: { Image: IMAGE, HostConfig: host } });
      assert.equal(reply.status, 400, reply.text);
    }
    assert.deepEqual(readdirSync(join(own.engine.dir, 'data')), before);
    for (const id of ids) await own.json('DELETE', `/containers/${id}?force=1`);
    assert.deepEqual(readdirSync(join(own.engine.dir, 'exec/roots')), []);
  });
});
