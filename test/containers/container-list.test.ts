/** The list of containers, and which of them are pruned. Passes against dockerd, too. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliSession, docker } from '../support/cli.js';
import { call, callJson } from '../support/http.js';
import { Lives, now, refused } from '../support/lives.js';
import { waitFor } from '../support/wait.js';

const lives = new Lives();

interface Item {
  readonly Names: string[];
  readonly SizeRw?: number;
  readonly SizeRootFs?: number;
  readonly Command: string;
  readonly State: string;
}

/** Filters, and which of the three containers they find. */
const FILTERS = [
  ['name=ir', 'third first'],
  ['name=^/second$', 'second'],
  ['label=tier', 'second first'],
  ['label=tier=back', 'first'],
  ['status=created', 'first'],
  ['status=exited', 'third'],
  ['exited=4', 'third'],
  ['exited=0', ''],
  ['exited=-9223372036854775808', ''],
  ['exited=9223372036854775807', ''],
  ['before=second', 'first'],
  ['since=second', 'third'],
  ['ancestor=nothing', ''],
  ['volume=/srv/data', 'first'],
  ['network=none', 'third'],
  ['network=bridge', 'second first'],
  ['publish=80', ''],
  ['publish=1024-65535', 'second'],
  ['publish=1024-65535/udp', ''],
  ['expose=80', 'second'],
  ['expose=60-90', 'second'],
  ['expose=70/udp', ''],
  ['is-task=false', 'third second first'],
  ['health=none', 'third second first'],
] as const;

async function refusesWrongFilters(): Promise<void> {
  for (const filter of [
    '{"nope":["1"]}',
    '{"status":["gone"]}',
    '{"exited":["x"]}',
    '{"exited":["9223372036854775808"]}',
    '{"exited":["-9223372036854775809"]}',
    '{"exited":["4"],"status":{"exited":true}}',
    '{"is-task":["maybe"]}',
    'nonsense',
  ]) {
    const { status, text } = await call(
      lives.engine.socketPath,
      'GET',
      `/containers/json?filters=${encodeURIComponent(filter)}`,
    );
    assert.ok(status === 400 || (lives.engine.name === 'dockerd' && status === 500), `${filter}: ${status} ${text}`);
  }
  // The original of this age has another status for it.
  for (const filter of lives.engine.name === 'engined' ? ['before', 'since'] : [])
    await refused(
      call(
        lives.engine.socketPath,
        'GET',
        `/containers/json?filters=${encodeURIComponent(`{"${filter}":["nobody"]}`)}`,
      ),
      404,
      /No such container: nobody/,
    );
}

async function tellsSizes(): Promise<void> {
  const sized = (await callJson<Item[]>(lives.engine.socketPath, 'GET', '/containers/json?size=1')).find(
    ({ Names }) => Names[0] === '/second',
  );
  assert.equal(sized?.SizeRw, 9);
  assert.ok((sized?.SizeRootFs ?? 0) > 500_000);
  const plain = await callJson<Item[]>(lives.engine.socketPath, 'GET', '/containers/json');
  assert.deepEqual([plain[0]?.SizeRw, plain[0]?.SizeRootFs], [undefined, undefined]);
  const whole = await callJson<{ SizeRw?: number; SizeRootFs?: number }>(
    lives.engine.socketPath,
    'GET',
    '/containers/second/json?size=1',
  );
  assert.deepEqual([whole.SizeRw, whole.SizeRootFs], [sized?.SizeRw, sized?.SizeRootFs]);
  assert.equal((await callJson<Item[]>(lives.engine.socketPath, 'GET', '/containers/json?limit=-1&all=1')).length, 3);
}

describe('list', () => {
  test('filters, limits, sizes and order', async () => {
    const first = await lives.ok(
      'create',
      '--name',
      'first',
      '--label',
      'tier=back',
      '--label',
      'old',
      '--expose',
      '70/udp',
      '-v',
      '/srv/data',
      lives.image,
    );
    await lives.runDetached(
      'second',
      'echo 12345678 > /tmp/file; sleep 1000',
      '--label',
      'tier=front',
      '-p',
      '127.0.0.1:0:80',
    );
    await lives.runDetached('third', 'exit 4', '--network', 'none');
    await lives.until('third', 'the end', ({ State }) => !State.Running);
    const names = (...flags: string[]): Promise<string> =>
      lives.ok('ps', '--format', '{{.Names}}', ...flags).then((text) => text.split('\n').join(' '));
    assert.equal(await names('-a'), 'third second first');
    assert.equal(await names(), 'second');
    assert.equal(await names('-n', '2'), 'third second');
    assert.equal(await names('-l'), 'third');
    const own = [
      ['id=' + first.slice(0, 12), 'first'],
      ['id=' + first.slice(1, 20), ''],
      ['id=', ''],
      ['ancestor=' + lives.image, 'third second first'],
      ['ancestor=' + (await lives.ok('image', 'inspect', '--format', '{{.Id}}', lives.image)), 'third second first'],
    ] as const;
    for (const [filter, wanted] of [...FILTERS, ...own]) {
      const found = await names('-a', '--filter', filter);
      assert.equal(found, wanted, filter);
    }
    for (const filter of ['exited=4', 'before=second', 'since=second'])
      assert.equal(await names('--filter', filter), '', `without -a: ${filter}`);
    assert.equal(await names('-a', '--filter', 'label=tier', '--filter', 'label=old'), 'first');
    assert.equal(await names('-a', '--filter', 'status=created', '--filter', 'status=exited'), 'third first');
    await refusesWrongFilters();
    await tellsSizes();
  });
});

describe('top, changes, resize, prune', () => {
  test('top has the titles that ps was asked for', async () => {
    await lives.runDetached('web', 'sleep 1000 & sleep 2000');
    await waitFor('both', async () => (await lives.ok('top', 'web')).includes('sleep 2000'));
    const top = await callJson<{ Titles: string[]; Processes: string[][] }>(
      lives.engine.socketPath,
      'GET',
      '/containers/web/top',
    );
    assert.deepEqual(top.Titles, ['UID', 'PID', 'PPID', 'C', 'STIME', 'TTY', 'TIME', 'CMD']);
    assert.ok(top.Processes.length >= 2 && top.Processes.every((row) => row.length === 8));
    assert.ok(top.Processes.some((row) => row.at(-1)?.includes('sleep 1000')));
    const chosen = await callJson<{ Titles: string[]; Processes: string[][] }>(
      lives.engine.socketPath,
      'GET',
      '/containers/web/top?ps_args=-o%20pid,args',
    );
    assert.deepEqual(chosen.Titles, ['PID', 'COMMAND']);
    assert.ok((await call(lives.engine.socketPath, 'GET', '/containers/web/top?ps_args=--nonsense')).status >= 400);
    const hidden = await call(lives.engine.socketPath, 'GET', '/containers/web/top?ps_args=-o%20comm');
    assert.ok(hidden.status >= 400, hidden.text);
    await lives.ok('stop', '-t', '0', 'web');
    const stopped = await call(lives.engine.socketPath, 'GET', '/containers/web/top');
    assert.equal(stopped.status, 409, stopped.text);
    assert.match(stopped.text, /is not running/i);
  });

  test('changes: added, changed and deleted paths', async () => {
    await lives.ok(
      'run',
      '--name',
      'web',
      lives.image,
      'sh',
      '-c',
      'echo more >> /etc/motd; rm /bin/true; mkdir /srv; echo x > /srv/x; chmod 700 /home',
    );
    const changes = await callJson<{ Path: string; Kind: number }[]>(
      lives.engine.socketPath,
      'GET',
      '/containers/web/changes',
    );
    const found = Object.fromEntries(changes.map(({ Path, Kind }) => [Path, Kind]));
    for (const [path, kind] of [
      ['/etc/motd', 0],
      ['/bin', 0],
      ['/bin/true', 2],
      ['/srv', 1],
      ['/srv/x', 1],
      ['/home', 0],
    ] as const)
      assert.equal(found[path], kind, path);
    await lives.ok('create', '--name', 'untouched', lives.image);
    assert.equal((await call(lives.engine.socketPath, 'GET', '/containers/untouched/changes')).text.trim(), 'null');
  });

  test('resize of a terminal', async () => {
    const since = now();
    const session = new CliSession(lives.engine, ['run', '-it', '--name', 'web', lives.image, 'sh'], {
      terminal: { rows: 24, columns: 80 },
    });
    await session.output(/# /);
    const { Id } = await lives.inspect('web');
    await waitFor('the size', async () => {
      // The CLI tells the size of its own terminal when it likes.
      assert.equal((await lives.post('/containers/web/resize?h=41&w=99')).status, 200);
      session.write('stty size\n');
      await sleep(100);
      return session.stdout.includes('41 99');
    });
    await refused(lives.post('/containers/web/resize?h=x&w=1'), 400, /height|invalid syntax/);
    session.write('exit\n');
    await session.ended();
    assert.ok((await lives.events(since, Id, 'height', 'width')).includes('resize height=41 width=99'));
    await refused(lives.post('/containers/web/resize?h=1&w=1'), 409, /is not running/);
  });

  test('prune removes what does not run and fits the filters', async () => {
    await lives.ok('create', '--name', 'kept', '--label', 'keep', lives.image);
    await lives.ok('create', '--name', 'marked', '--label', 'go=1', lives.image);
    await lives.ok('run', '--name', 'ended', lives.image, 'sh', '-c', 'head -c 100000 /dev/zero > /tmp/f');
    await lives.runDetached('running', 'sleep 1000');
    const prune = async (filters: unknown): Promise<string[]> => {
      const { ContainersDeleted, SpaceReclaimed } = await callJson<{
        ContainersDeleted: string[] | null;
        SpaceReclaimed: number;
      }>(lives.engine.socketPath, 'POST', `/containers/prune?filters=${encodeURIComponent(JSON.stringify(filters))}`);
      assert.ok(SpaceReclaimed >= 0);
      return ContainersDeleted ?? [];
    };
    assert.deepEqual(await prune({ until: ['1h'] }), []);
    assert.equal((await prune({ label: ['go=1'] })).length, 1);
    const since = now();
    const { ContainersDeleted, SpaceReclaimed } = await callJson<{
      ContainersDeleted: string[];
      SpaceReclaimed: number;
    }>(lives.engine.socketPath, 'POST', `/containers/prune?filters=${encodeURIComponent('{"label!":["keep"]}')}`);
    assert.equal(ContainersDeleted.length, 1);
    assert.ok(SpaceReclaimed >= 100_000 && SpaceReclaimed < 300_000, String(SpaceReclaimed));
    assert.deepEqual((await lives.ok('ps', '-a', '--format', '{{.Names}}')).split('\n').toSorted(), [
      'kept',
      'running',
    ]);
    const told = (
      await call(lives.engine.socketPath, 'GET', `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}`)
    ).text;
    assert.match(told, /"Action":"prune".*"reclaimed":"\d+"/);
    await refused(
      lives.post(`/containers/prune?filters=${encodeURIComponent('{"nope":["1"]}')}`),
      400,
      /invalid filter/i,
    );
    assert.equal((await docker(lives.engine, ['container', 'prune', '-f'])).status, 0);
    assert.equal(await lives.ok('ps', '-a', '--format', '{{.Names}}'), 'running');
  });
});
