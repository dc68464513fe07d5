/** The states of the process before it runs: the real binary, its messages and exit codes. */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import requirements from '../../packaging/requirements.json' with { type: 'json' };
import { Cleanup } from '../support/cleanup.js';
import { engined } from '../support/engined.js';
import { Engine } from '../support/engine.js';
import { installCopy } from '../support/installed-copy.js';

/** This file is in dist/test. */
const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));

interface Run {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface CheckedRow {
  readonly name: string;
  readonly verdict: string;
  readonly text: string;
}

let dir: string;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-start-up-'));
});
after(() => rm(dir, { recursive: true, force: true }));

function run(...args: readonly string[]): Promise<Run> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [MAIN, ...args], { timeout: 20_000 }, (_error, stdout, stderr) =>
      resolve({ code: child.exitCode ?? -1, stdout, stderr }),
    );
  });
}

async function configFile(content: unknown): Promise<string> {
  const path = join(dir, 'daemon.json');
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

/**
 * A start that has nothing wrong but what `args` and the file bring; it touches nothing outside the directory of the
 * test.
 */
async function start(content: unknown, ...args: readonly string[]): Promise<Run> {
  const hosts = args.includes('--host') ? [] : ['--host', `unix://${join(dir, 'engine.sock')}`];
  const own = [
    '--data-root',
    join(dir, 'data'),
    '--exec-root',
    join(dir, 'exec'),
    '--pidfile',
    join(dir, 'engine.pid'),
    '--bridge',
    'none',
    ...hosts,
  ];
  return run('--config-file', await configFile(content), ...own, ...args);
}

const prefix = (): string => `unable to configure the daemon with file ${join(dir, 'daemon.json')}: `;

for (const [what, content, args, rest] of [
  [
    'an option in flags and file, with the same value',
    { debug: true },
    ['--debug'],
    'the following directives are specified both as a flag and in the configuration file: debug: ' +
      '(from flag: true, from file: true)\n  debug at line 1, column 2 of ',
  ],
  [
    'an option in flags and file, with another value',
    { mtu: 1400 },
    ['--mtu', '1300'],
    'the following directives are specified both as a flag and in the configuration file: mtu: (from flag: ' +
      '1300, from file: 1400)\n',
  ],
  [
    'log-format by flag and file',
    { 'log-format': 'json' },
    ['--log-format', 'text'],
    'the following directives are specified both as a flag and in the configuration file: log-format: ' +
      '(from flag: text, from file: json)\n',
  ],
  [
    'features by flag and file',
    { features: { cdi: true } },
    ['--feature', 'other'],
    'the following directives are specified both as a flag and in the configuration file: features: ' +
      '(from flag: map[other:true], from file: map[cdi:true])\n',
  ],
  [
    'keys that are no options',
    { 'registry-mirror': [], shoes: 1 },
    [],
    "the following directives don't match any configuration option: registry-mirror, shoes\n",
  ],
  ['a file that is no JSON', '{"debug": tru}', [], 'invalid JSON at line 1, column 11'],
] as const) {
  test(`not started: ${what}`, async () => {
    const { code, stdout, stderr } = await start(content, ...args);
    assert.equal(code, 1);
    assert.equal(stdout, '');
    assert.ok(stderr.startsWith(`${prefix()}${rest}`), stderr);
    assert.equal(existsSync(join(dir, 'data')), false, 'nothing was touched');
  });
}

const REFUSED_PARENT = `/engine-refused-${randomBytes(4).toString('hex')}/below`;

for (const [what, args, message] of [
  // The machine of the tests has no systemd, like the containers in which this is met most.
  ...(existsSync('/run/systemd/system')
    ? []
    : [
        [
          'the systemd cgroup driver is not available',
          ['--exec-opt', 'native.cgroupdriver=systemd'],
          'exec-opt native.cgroupdriver=systemd: systemd is not running on this host; use cgroupfs',
        ] as const,
      ]),
  [
    'fd:// without socket activation',
    ['--host', 'fd://'],
    'engined cannot run: failed to load listeners: no sockets found via socket activation: ' +
      'make sure the service was started by systemd',
  ],
  ['a group that does not exist', ['--group', 'nobody-has-this'], 'group nobody-has-this not found'],
  [
    'a storage driver on the wrong file system',
    ['--storage-driver', 'zfs'],
    'storage driver zfs: prerequisites for driver not satisfied (wrong filesystem?)',
  ],
  ['rootless without a user namespace', ['--rootless'], 'rootless: the daemon must run in a user namespace of its own'],
  [
    'a snapshotter that the supervisor lacks',
    ['--feature', 'supervisor-snapshotter', '--storage-driver', 'overlay2'],
    'snapshotter not loaded: overlay2: the supervisor has no such snapshotter',
  ],
  [
    'more real time than there is',
    ['--cpu-rt-runtime', '900000000', '--cgroup-parent', REFUSED_PARENT],
    'engined cannot run: cpu-rt-runtime',
  ],
  ['a socket in a directory that is a file', ['--host', `unix://${MAIN}/engine.sock`], 'engined cannot run: '],
] as const) {
  test(`not started: ${what}`, async () => {
    const { code, stderr } = await start({}, ...args);
    assert.equal(code, 1, stderr);
    const lines = stderr.trimEnd().split('\n');
    assert.ok(lines.at(-1)?.includes(message), `the last line should say ${message}:\n${stderr}`);
    assert.ok(!stderr.includes('    at '), `no stack for what an operator can set right:\n${stderr}`);
    assert.equal(existsSync(join('/sys/fs/cgroup/cpu', dirname(REFUSED_PARENT))), false, 'no control group is left');
    assert.equal(existsSync(join(dir, 'engine.pid')), false);
    assert.equal(existsSync(join(dir, 'exec', 'supervisor', 'supervisor.pid')), false, 'no supervisor is left');
  });
}

test('running: a daemon whose file names no option takes over what is left, and ends in order', async (t) => {
  const engine = await Engine.start(engined());
  try {
    await t.test('a pidfile of a process that is something else by now', async () => {
      const pidfile = join(engine.dir, 'engine.pid');
      assert.equal(await engine.stop('SIGKILL'), 'SIGKILL');
      // This test process is alive, and is no daemon.
      await writeFile(pidfile, `${process.pid}\n`);
      await engine.start();
      assert.equal((await readFile(pidfile, 'utf8')).trim(), String(engine.pid));
    });
    await t.test('a directory of temporary files that is a link, to where others have files', async () => {
      const [link, target] = [join(engine.dir, 'data', 'tmp'), join(engine.dir, 'elsewhere')];
      assert.equal(await engine.stop(), 0);
      await mkdir(target);
      await writeFile(join(target, 'note'), 'of somebody else');
      await symlink(target, link);
      await engine.start();
      assert.match((await readdir(target)).toSorted().join(' '), /^engined-[0-9a-f-]{36} note$/);
      assert.equal(await engine.stop(), 0);
      assert.deepEqual([await readlink(link), await readdir(target)], [target, ['note']]);
    });
  } finally {
    await engine.close();
  }
});

test(
  'running: the parent of all containers gets its real-time share',
  { skip: !existsSync('/sys/fs/cgroup/cpu/cpu.rt_runtime_us') },
  async () => {
    const kind = engined({ args: ['--cpu-rt-period', '500000', '--cpu-rt-runtime', '20000'] });
    const engine = await Engine.start(kind);
    try {
      assert.equal((await readFile(`/sys/fs/cgroup/cpu/${kind.mark}/cpu.rt_runtime_us`, 'utf8')).trim(), '20000');
      assert.equal((await readFile(`/sys/fs/cgroup/cpu/${kind.mark}/cpu.rt_period_us`, 'utf8')).trim(), '500000');
    } finally {
      await engine.close();
    }
  },
);

test('--validate: a good file', async () => {
  assert.deepEqual(await run('--validate', '--config-file', await configFile({ debug: true, mtu: 1400 })), {
    code: 0,
    stdout: '',
    stderr: 'configuration OK\n',
  });
});

test('--validate: a bad file', async () => {
  const { code, stdout, stderr } = await run('--validate', '--config-file', await configFile({ unknown: 1 }));
  assert.deepEqual([code, stdout], [1, '']);
  assert.ok(
    stderr.startsWith(`${prefix()}the following directives don't match any configuration option: unknown\n`),
    stderr,
  );
});

test('--validate: a named file that does not exist', async () => {
  const path = join(dir, 'nowhere.json');
  assert.deepEqual(await run('--validate', '--config-file', path), {
    code: 1,
    stdout: '',
    stderr: `unable to configure the daemon with file ${path}: open ${path}: no such file or directory\n`,
  });
});

test('check: a machine that has everything, one that lacks programs, and how the configuration counts', async () => {
  const path = process.env['PATH'];
  const check = (...args: readonly string[]): Promise<Run> =>
    run('check', '--config-file', join(dir, 'check.json'), ...args);
  await writeFile(join(dir, 'check.json'), '{}');
  const whole = await check();
  assert.equal(whole.stderr, '');
  assert.match(whole.stdout, /^ok +programs +none is missing$/m);
  assert.match(whole.stdout, /this machine has what the daemon needs\n$/);
  process.env['PATH'] = '/nonexistent';
  try {
    const { code, stdout: some } = await check();
    assert.equal(code, 1);
    assert.match(some, /^failure +program +missing: runc \(/m);
    assert.doesNotMatch(some, /: nft /, 'iptables is the one to install where neither is there');
    const nftables = await check('--firewall-backend', 'nftables');
    assert.doesNotMatch(nftables.stdout, /iptables/);
    const stdout = some + nftables.stdout;
    for (const { program, package: alternatives, need } of requirements) {
      // Only hosts and configurations that use these programs need them, and a library is not found by PATH.
      if (['apparmor', 'fuse-overlayfs', 'rootless', 'library'].includes(need)) continue;
      const name = alternatives.replace(' | ', ' or ');
      assert.match(
        stdout,
        new RegExp(`^(failure|note) +program +missing: ${program} \\(.*Debian package ${name}$`, 'm'),
      );
    }
    const without = await check('--supervisor', '/run/other.sock', '--iptables=false', '--ip6tables=false');
    assert.equal(without.code, 1);
    assert.doesNotMatch(without.stdout, /: containerd |iptables|: nft /);
  } finally {
    process.env['PATH'] = path;
  }
  const refused = await check('--storage-driver', 'zfs');
  assert.equal(refused.code, 1);
  assert.match(refused.stdout + refused.stderr, /storage driver zfs: /);
});

test('check: the worst row decides about the status, in text and in JSON', async () => {
  const file = join(dir, 'check.json');
  await writeFile(file, '{}');
  const rowsOf = async (...args: readonly string[]): Promise<{ code: number | null; rows: CheckedRow[] }> => {
    const { code, stdout } = await run('check', '--json', '--config-file', file, ...args);
    const { verdict, rows } = JSON.parse(stdout) as { verdict: string; rows: CheckedRow[] };
    assert.equal(code, { ok: 0, note: 0, warning: 2, failure: 1 }[verdict]);
    assert.ok(rows.some((row) => row.verdict === verdict));
    return { code, rows };
  };
  const find = ({ rows }: { rows: CheckedRow[] }, name: string): CheckedRow | undefined =>
    rows.find((row) => row.name === name);
  const before = await rowsOf();
  assert.equal(find(before, 'seccomp')?.verdict, 'ok');
  assert.equal(
    find(before, 'cgroup version')?.verdict,
    existsSync('/sys/fs/cgroup/cgroup.controllers') ? 'ok' : 'note',
  );
  assert.match(find(before, 'storage drivers')?.text ?? '', /chosen: overlay2/);
  // Kernels of the machines of tests have them, and so have their file systems.
  assert.equal(find(before, 'idmapped mounts')?.verdict, 'ok');
  const loose = await rowsOf('--seccomp-profile', 'unconfined');
  assert.deepEqual([loose.code, find(loose, 'seccomp')?.verdict], [2, 'warning']);
  const path = process.env['PATH'] ?? '';
  const bin = await mkdtemp(join(dir, 'bin-'));
  process.env['PATH'] = `${bin}:${path}`;
  try {
    const verdicts = { '1.1.11': 'warning', '1.1.11+ds1': 'note', '1.3.6': 'ok' };
    for (const [version, verdict] of Object.entries(verdicts)) {
      await writeFile(join(bin, 'runc'), `#!/bin/sh\necho 'runc version ${version}'\n`, { mode: 0o755 });
      const found = find(await rowsOf(), 'version of runc');
      assert.deepEqual([found?.verdict, found?.text.includes('CVE-2024-21626')], [verdict, version !== '1.3.6']);
    }
  } finally {
    process.env['PATH'] = path;
  }
});

test('--help, --version and --print-config-schema', async () => {
  const help = await run('--help');
  assert.deepEqual([help.code, help.stderr], [0, '']);
  assert.ok(help.stdout.startsWith('Usage:  engined [OPTIONS]\n'));
  for (const flag of ['-v', '--version']) {
    const version = await run(flag);
    assert.deepEqual([version.code, version.stderr], [0, '']);
    assert.match(version.stdout, /^engined version \d+\.\d+\.\d+(, build [0-9a-f]{7,})?\n$/);
  }
  const schema = await run('--print-config-schema');
  assert.equal(schema.code, 0);
  assert.equal(typeof JSON.parse(schema.stdout), 'object');
});

test('a command line that is wrong', async () => {
  assert.deepEqual(await run('--nope'), {
    code: 1,
    stdout: '',
    stderr: "unknown flag: --nope\nSee 'engined --help'.\n",
  });
});

test('V8 takes the code that the build kept; without it, and with other code, the program runs too', async () => {
  const cleanup = new Cleanup();
  const { main } = installCopy(cleanup);
  const bundle = dirname(main);
  const names = await readdir(bundle);
  const kept = (start: string): string[] =>
    ['.cjs', '.code'].map((end) =>
      join(bundle, names.find((name) => name.startsWith(start) && name.endsWith(end)) ?? ''),
    );
  const [program, thread] = [kept('engined-'), kept('thread-')];
  const [, code = ''] = program;
  const text = await readFile(main, 'utf8');
  const flags = / node (--.*) "\$0"/.exec(text)?.[1]?.split(' ') ?? [];
  const resets = [...text.matchAll(/setFlagsFromString\)\("(.*?)"\)/g)].map(([, flag]) => flag);
  const load = `
    const { readFileSync } = require('node:fs');
    const [script, code] = process.argv.slice(1);
    for (const flag of ${JSON.stringify(resets)}) require('node:v8').setFlagsFromString(flag);
    const cachedData = readFileSync(code);
    const { Script } = require('node:vm');
    console.log(new Script(readFileSync(script, 'latin1'), { cachedData }).cachedDataRejected);`;
  const isRejected = (files: readonly string[], ...options: readonly string[]): string =>
    execFileSync(process.execPath, [...options, '-e', load, ...files], { encoding: 'utf8' }).trim();
  const version = (): string => execFileSync(main, ['--version'], { encoding: 'utf8' });
  try {
    for (const files of [program, thread])
      assert.deepEqual([isRejected(files, ...flags), isRejected(files, ...flags, '--max-lazy')], ['false', 'true']);
    const usual = version();
    assert.match(usual, /^engined version /);
    const bytes = await readFile(code);
    for (const other of [bytes.subarray(0, bytes.length >> 1), Buffer.from('no code'), Buffer.alloc(0)]) {
      await writeFile(code, other);
      assert.equal(version(), usual);
    }
    await rm(code);
    assert.equal(version(), usual);
  } finally {
    await cleanup.run();
  }
});
