/** Values of `userns-remap`: what is refused, and what the daemon makes by itself. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFileSync, chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readIdMaps, sharedRanges } from '../../src/sys/users/remapped-user.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { FIRST, GROUPS, makeRemapper, SECOND } from '../support/remapper.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'userns-test-'));

before(() => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  makeRemapper(temp, cleanup);
  appendFileSync(
    '/etc/passwd',
    ['twice', 'small', 'broken'].map((name, at) => `${name}:x:${7010 + at}:7003::/:/\n`).join(''),
  );
  appendFileSync('/etc/group', 'twice:x:7010:\nsmall:x:7011:\nbroken:x:7012:\n');
  appendFileSync(
    '/etc/subuid',
    'twice:30000:60000\ntwice:89999:60000\nsmall:1000:1000\nsmall:3000:64535\nbroken:1000:many\nguest:263000:10\n',
  );
  appendFileSync('/etc/subgid', 'twice:30000:65536\nsmall:1000:65536\nguest:464000:1000\n');
});
after(() => cleanup.run());

test('values that cannot be are refused before anything is touched', () => {
  for (const [value, message] of [
    ['nobody-has-this', 'userns-remap nobody-has-this: there is no user nobody-has-this in /etc/passwd'],
    ['rangeless', 'no range of user rangeless in /etc/subuid'],
    ['remapper:nobody-has-this', 'there is no group nobody-has-this in /etc/group'],
    ['123456', 'there is no user 123456 in /etc/passwd'],
    ['a:b:c', 'it must be auto, default, USER, UID, USER:GROUP or UID:GID'],
    [':', 'it must be auto, default'],
    ['twice', 'twice: /etc/subuid: twice:30000:60000 and twice:89999:60000 hold the same ids; remove one of them'],
    [
      '7011:7002',
      'the ranges of user small in /etc/subuid hold 65535 ids (small:1000:1000, small:3000:64535), and ' +
        'containers need 65536; add one with: usermod --add-subuids FIRST-LAST small',
    ],
    ['broken', '/etc/subuid: broken:1000:many is no range of ids'],
  ] as const) {
    assert.throws(
      () => readIdMaps(value),
      (error: Error) => error.message.includes(message),
      value,
    );
  }
  for (const value of ['remapper', '7001', 'remapper:remapper', '7001:7002'])
    assert.equal(readIdMaps(value)?.uids[1]?.hostId, SECOND, value);
  assert.equal(readIdMaps('root'), undefined);
  for (const [value, message, ...more] of [
    ['rangeless', /no range of user rangeless in \/etc\/subuid/],
    ['rangeless', /no range of user rangeless in \/etc\/subuid/, '--validate'],
    ['twice', /userns-remap twice: \/etc\/subuid: twice:30000:60000 and twice:89999:60000 hold the same ids/],
  ] as const) {
    const root = join(temp, 'refused');
    const { status, stderr } = spawnSync(
      MAIN,
      [
        '--config-file',
        '/dev/null',
        '--data-root',
        root,
        '--exec-root',
        join(root, 'exec'),
        '--pidfile',
        join(temp, 'pid'),
        '--host',
        `unix://${temp}/s`,
        '--userns-remap',
        value,
        ...more,
      ],
      { encoding: 'utf8' },
    );
    assert.equal(status, 1);
    assert.match(stderr, message);
    assert.equal(existsSync(root), false);
  }
  assert.equal(spawnSync(MAIN, ['--config-file', '/dev/null', '--validate', '--userns-remap', 'default']).status, 0);
});

test('ranges of others that hold the same ids are told', () => {
  const same = 'hold the same ids: guest can reach files of containers';
  assert.deepEqual(sharedRanges('remapper'), [
    `/etc/subuid: remapper:${SECOND}:64536 and guest:263000:10 ${same}`,
    `/etc/subgid: remapper:${GROUPS}:65536 and guest:464000:1000 ${same}`,
  ]);
});

test('default: a user that is made with ranges that nobody has', async () => {
  const plain = engined({ args: ['--userns-remap', 'default', '--bridge', 'none'] });
  const other = await Engine.start({
    ...plain,
    command: (dir, socketPath) => (chmodSync(dir, 0o711), plain.command(dir, socketPath)),
  });
  try {
    for (const [file, first] of [
      ['/etc/subuid', FIRST + 1000],
      ['/etc/subgid', GROUPS + 65_536],
    ] as const) {
      assert.match(readFileSync(file, 'utf8'), new RegExp(`^engineremap:${first}:65536$`, 'm'), file);
    }
    assert.match(readFileSync('/etc/passwd', 'utf8'), /^engineremap:/m);
    await other.stop();
    await other.start();
    assert.equal(readFileSync('/etc/subuid', 'utf8').match(/engineremap/g)?.length, 1);
  } finally {
    await other.close();
  }
});

test('a data root that the containers cannot get to is named, after what is only a warning', async () => {
  const plain = engined({ args: ['--userns-remap', 'remapper'] });
  // The directory of the daemon has the mode of mkdtemp(3).
  await assert.rejects(Engine.start(plain), ({ message }: Error) => {
    assert.match(
      message,
      /the remapped root of containers \(300000:400000\) cannot pass through \/\S+: give the directory the mode o\+x/,
    );
    assert.match(
      message,
      /userns-remap remapper: \/etc\/subuid: remapper:200000:64536 and guest:263000:10 hold the same/,
    );
    return true;
  });
});
