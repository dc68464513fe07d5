/**
 * Faults that other engines had, each with the gain of an attacker. Other faults of those years have their tests
 * elsewhere: authorization of bodies (authorization), malformed manifests (bad-input), remapped users (userns), reloads
 * of the firewall (firewall-flush), routes of neighbours (hostile-neighbours).
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, type Reply } from '../support/http.js';
import { busyboxEntries, tarOf } from '../support/image-builder.js';
import { Swapping } from '../support/swapping.js';
import { waitFor } from '../support/wait.js';

const SECRET = 'what only the host knows';
const cleanup = new Cleanup();
let engine: Engine;
let image: string;
/** A directory of the host with the secret in a file `canary`. */
let outside: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
  outside = join(engine.dir, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'canary'), SECRET);
});
after(() => cleanup.run());

afterEach(() => removeContainers(engine));

async function create(json: object): Promise<string> {
  const body = { json: { Image: image, Tty: true, ...json } };
  return (await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', body)).Id;
}

/** Starts it, waits for its end, and gives what it printed; the refusal when it does not start. */
async function output(json: object): Promise<string> {
  const id = await create(json);
  const started = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
  if (started.status !== 204) return `refused: ${started.text}`;
  await callJson(engine.socketPath, 'POST', `/containers/${id}/wait`);
  return (await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&stderr=1`)).text.replaceAll('\r', '');
}

/** So much of a processor lets a racing container act often, and leaves the rest to the others. */
const A_THIRD = { HostConfig: { NanoCpus: 300_000_000 } };

async function running(script = 'sleep 1000', json: object = {}): Promise<string> {
  const id = await create({ Cmd: ['sh', '-c', script], ...json });
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`);
  return id;
}

async function execOutput(id: string, Cmd: readonly string[], json: object = {}): Promise<string> {
  const body = {
    json: { Cmd, AttachStdout: true, AttachStderr: true, Tty: true, ...json },
  };
  const exec = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, body);
  const reply = await call(engine.socketPath, 'POST', `/exec/${exec.Id}/start`, { json: { Tty: true } });
  return reply.text.replaceAll('\r', '');
}

function archive(method: 'GET' | 'PUT', id: string, path: string, body?: Buffer): Promise<Reply> {
  const headers = { 'Content-Type': 'application/x-tar' };
  return call(
    engine.socketPath,
    method,
    `/containers/${id}/archive?path=${encodeURIComponent(path)}`,
    body ? { body, headers } : {},
  );
}

/**
 * Returns the content of an archive; nothing when it broke off, as an archive of a file does that was removed
 * meanwhile.
 */
async function archived(method: 'GET' | 'PUT', id: string, path: string, body?: Buffer): Promise<Buffer> {
  try {
    return (await archive(method, id, path, body)).body;
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE'))
      return Buffer.alloc(0);
    throw error;
  }
}

test('descriptors and working directories of the host (CVE-2024-21626, CVE-2019-14271)', async () => {
  const id = await running();
  const { State } = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  // Until its program begins the process is the runtime's, with descriptors of that.
  await waitFor('the program', () => /^(?:sh|sleep)\0/.test(readFileSync(`/proc/${State.Pid}/cmdline`, 'utf8')));
  assert.deepEqual(
    readdirSync(`/proc/${State.Pid}/fd`).filter((fd) => Number(fd) < 10),
    ['0', '1', '2'],
  );
  assert.ok(
    readdirSync(`/proc/${State.Pid}/fd`).every(
      (fd) => !readlinkSync(`/proc/${State.Pid}/fd/${fd}`).startsWith(engine.dir),
    ),
  );
  for (let fd = 3; fd < 12; fd++) {
    const WorkingDir = `/proc/self/fd/${fd}`;
    const path = `${'../'.repeat(12)}${outside.slice(1)}/canary`;
    const fromStart = await output({ Cmd: ['cat', path], WorkingDir });
    assert.ok(!fromStart.includes(SECRET), fromStart);
    const fromExec = await execOutput(id, ['cat', path], { WorkingDir });
    assert.ok(!fromExec.includes(SECRET), fromExec);
  }
});

test('capabilities that a process could inherit or regain (CVE-2022-24769, CVE-2016-8867)', async () => {
  const script = 'grep -E "^Cap(Inh|Amb|Eff)" /proc/self/status';
  const zero = '0000000000000000';
  const root = await output({ Cmd: ['sh', '-c', script] });
  assert.match(root, new RegExp(`CapInh:\\s+${zero}`));
  assert.match(root, new RegExp(`CapAmb:\\s+${zero}`));
  const user = await output({
    Cmd: ['sh', '-c', script],
    User: '1000',
    HostConfig: { CapAdd: ['SYS_ADMIN'] },
  });
  for (const name of ['CapInh', 'CapAmb', 'CapEff']) assert.match(user, new RegExp(`${name}:\\s+${zero}`));
  assert.match(await execOutput(await running(), ['sh', '-c', script]), new RegExp(`CapInh:\\s+${zero}`));
});

test('groups and users that are others than asked for (CVE-2022-36109, CVE-2023-25173, CVE-2024-40635)', async () => {
  const groups = await output({
    Cmd: ['sh', '-c', 'id -u; id -g; id -G'],
    User: '1000:2000',
  });
  assert.equal(groups, '1000\n2000\n2000\n');
  assert.match(
    await output({
      Cmd: ['grep', '^Groups', '/proc/self/status'],
      User: '1000:2000',
    }),
    /^Groups:\t2000 ?\n$/,
  );
  for (const User of [
    '4294967296',
    '4294967296:4294967296',
    '2147483648',
    '-1',
    '18446744073709551616',
    '0x0',
    '1000:4294967296',
  ]) {
    const printed = await output({ Cmd: ['id'], User });
    assert.ok(printed.startsWith('refused: ') && !printed.includes('uid=0'), `${User}: ${printed}`);
  }
});

test('sockets of the supervisor in the network of the host (CVE-2020-15257)', async () => {
  const id = await running();
  assert.doesNotMatch(readFileSync('/proc/net/unix', 'latin1'), new RegExp(` @\\S*(containerd|shim|${id})`));
});

test('files of the daemon that others may reach (CVE-2021-41091, CVE-2021-41103)', async () => {
  const id = await running();
  const { GraphDriver } = await callJson<{
    GraphDriver: { Data: { UpperDir: string } };
  }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  const parts = GraphDriver.Data.UpperDir.slice(engine.dir.length).split('/').filter(Boolean);
  const above = parts.map((_, index) => join(engine.dir, ...parts.slice(0, index + 1))).slice(0, -1);
  assert.ok(
    above.some((path) => (statSync(path).mode & 0o005) === 0),
    `others reach ${GraphDriver.Data.UpperDir}`,
  );
});

test('copies that follow links out of the container (CVE-2018-15664, CVE-2021-41089)', async () => {
  const id = await running(
    `mkdir /real; echo inside > /real/canary; cp -a /real /dir; ln -s ${outside} /link; touch /ready; exec sleep 1000`,
  );
  await waitFor('the files', async () => (await archive('GET', id, '/ready')).status === 200);
  const { State } = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  const swapping = await Swapping.begin(State.Pid, [
    { do: 'move', path: '/dir', to: '/aside' },
    { do: 'link', path: '/dir', to: outside },
    { do: 'remove', path: '/dir' },
    { do: 'move', path: '/aside', to: '/dir' },
  ]);
  chmodSync(outside, 0o711);
  for (let round = 0; round < 10; round++) {
    for (const path of ['/dir/canary', '/dir', '/link/canary', '/link/']) {
      const got = await archived('GET', id, path);
      assert.ok(!got.includes(SECRET), `${path} led out`);
    }
    const tar = tarOf([{ path: 'planted', content: Buffer.from('x') }]);
    for (const path of ['/dir', '/link']) await archived('PUT', id, path, tar);
  }
  await swapping.end();
  assert.deepEqual(readdirSync(outside), ['canary']);
  assert.equal(readFileSync(join(outside, 'canary'), 'utf8'), SECRET);
  assert.equal(statSync(outside).mode & 0o777, 0o711);
});

test('libraries of the container in a copy (CVE-2019-14271)', async () => {
  const libraries = ['/lib/x86_64-linux-gnu', '/lib/aarch64-linux-gnu', '/lib', '/usr/lib', '/lib64'];
  // A program that opens a pipe to read it waits for ever.
  const id = await running(
    `for d in ${libraries.join(' ')}; do mkdir -p $d; mkfifo $d/libnss_files.so.2 $d/libnss_compat.so.2; done; ` +
      `mkdir -p /etc; rm -f /etc/nsswitch.conf; mkfifo /etc/nsswitch.conf; touch /ready; sleep 1000`,
  );
  await waitFor('the files', async () => (await archive('GET', id, '/ready')).status === 200);
  const tar = tarOf([{ path: 'copied', content: Buffer.from('x') }]);
  assert.equal((await archive('PUT', id, '/', tar)).status, 200);
  assert.equal((await archive('GET', id, '/copied')).status, 200);
});

test('the runtime as a file that containers write to (CVE-2019-5736)', async () => {
  const runc = ['/usr/bin/runc', '/usr/sbin/runc', '/usr/local/sbin/runc', '/usr/local/bin/runc'].flatMap((path) => {
    try {
      return [[path, createHash('sha256').update(readFileSync(path)).digest('hex')] as const];
    } catch {
      return [];
    }
  });
  assert.ok(runc.length > 0);
  const id = await running('while :; do for p in /proc/[0-9]*/exe; do (echo x > $p) 2>/dev/null; done; done', A_THIRD);
  for (let round = 0; round < 5; round++) await execOutput(id, ['/proc/self/exe', 'true']);
  await output({ Cmd: ['/proc/self/exe'] });
  for (const [path, digest] of runc)
    assert.equal(createHash('sha256').update(readFileSync(path)).digest('hex'), digest, path);
});

test('files of the kernel about the host (CVE-2018-10892, CVE-2020-8694, CVE-2022-0492)', async () => {
  const id = await create({ Cmd: ['true'] });
  const { HostConfig } = await callJson<{
    HostConfig: { MaskedPaths: string[]; ReadonlyPaths: string[] };
  }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  for (const path of [
    '/proc/acpi',
    '/proc/kcore',
    '/proc/keys',
    '/proc/scsi',
    '/proc/timer_list',
    '/sys/firmware',
    '/sys/devices/virtual/powercap',
  ]) {
    assert.ok(HostConfig.MaskedPaths.includes(path), path);
  }
  assert.ok(HostConfig.ReadonlyPaths.includes('/proc/sysrq-trigger'));
  const script =
    'cat /proc/keys | wc -c; cat /proc/kcore 2>/dev/null | head -c 1 | wc -c; ' +
    'for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/fs/cgroup/release_agent ' +
    '/sys/fs/cgroup/*/release_agent /sys/kernel/uevent_helper; ' +
    'do [ -e $f ] && (echo x > $f) 2>/dev/null && echo wrote $f; done; echo over';
  assert.equal(await output({ Cmd: ['sh', '-c', script] }), '0\n0\nover\n');
});

test('system calls for namespaces of users (CVE-2022-0185)', async () => {
  assert.match(await output({ Cmd: ['sh', '-c', 'unshare -U true && echo made'] }), /Operation not permitted/);
});

test('sockets of the kernel for cryptography (CVE-2026-31431) and for virtual machines', async () => {
  // Each family prints the number of its refusal: 1 is the filter's, and a kernel that lacks the family has another.
  const program = 'for (1, 38 .. 41) { print "$_ ", (socket(S, $_, $_ == 38 ? 5 : 2, 0) ? 0 : $! + 0), "\\n" }';
  const refused = async (SecurityOpt: string[]): Promise<string[]> => {
    const Cmd = ['chroot', '/host', '/usr/bin/perl', '-e', program];
    const printed = await output({ Cmd, HostConfig: { Binds: ['/:/host:ro'], SecurityOpt } });
    assert.match(printed, /^1 0\n38 /);
    return printed.split('\n').flatMap((line) => (line.endsWith(' 1') ? [line.slice(0, -2)] : []));
  };
  assert.deepEqual(await refused([]), ['38', '40']);
  assert.deepEqual(await refused(['seccomp=unconfined']), []);
});

test('a volume of an image that is a path of the host (CVE-2022-23648)', async () => {
  const donor = await create({ Cmd: ['true'] });
  const path = `${'/..'.repeat(8)}${outside}`;
  const change = encodeURIComponent(`VOLUME ["${path}"]`);
  const made = await call(engine.socketPath, 'POST', `/commit?container=${donor}&repo=traversal&changes=${change}`);
  if (made.status !== 201) return;
  try {
    const printed = await output({
      Image: 'traversal',
      Cmd: ['sh', '-c', `cat ${outside}/canary ${path}/canary; ls -R ${outside}`],
    });
    assert.ok(!printed.includes(SECRET), printed);
  } finally {
    await removeContainers(engine);
    await callJson(engine.socketPath, 'DELETE', '/images/traversal');
  }
});

test('mount points of an image that are links to the host (CVE-2026-41579)', async () => {
  writeFileSync(join(outside, 'ptmx'), SECRET);
  const links = ['dev', 'proc', 'sys'];
  const kept = busyboxEntries().filter(({ path }) => !links.includes(path.replace(/\/.*/, '')));
  const tar = tarOf([...kept, ...links.map((path) => ({ path, type: 'symlink' as const, target: outside }))]);
  const made = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=linked', {
    body: tar,
    headers: { 'Content-Type': 'application/x-tar' },
  });
  assert.equal(made.status, 200, made.text);
  try {
    const Cmd = ['sh', '-c', 'test -c /dev/ptmx && test -d /proc/self && test -d /sys/kernel && echo whole'];
    assert.equal(await output({ Image: 'linked', Cmd }), 'whole\n');
    assert.deepEqual(readdirSync(outside).toSorted(), ['canary', 'ptmx']);
    assert.equal(readFileSync(join(outside, 'ptmx'), 'utf8'), SECRET);
    const copied = await create({ Cmd: ['true'] });
    const link = tarOf([{ path: 'dev', type: 'symlink', target: outside }]);
    assert.equal((await archived('PUT', copied, '/', link)).length, 0);
    const started = await call(engine.socketPath, 'POST', `/containers/${copied}/start`);
    assert.match(started.text, /\/dev of the root filesystem is not a directory/);
    assert.equal(started.status, 400);
    assert.deepEqual(readdirSync(outside).toSorted(), ['canary', 'ptmx']);
  } finally {
    await removeContainers(engine);
    await callJson(engine.socketPath, 'DELETE', '/images/linked');
  }
});
