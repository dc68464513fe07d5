/**
 * Settings that the daemon makes for containers that do not name them: they are seen in /proc, files and control
 * groups.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { attempt } from '../support/engine-commands.js';
import { waitFor } from '../support/wait.js';
import { ONE, type Group, type Scene } from './scene.js';

/** Not the default, which depends on the version of the control groups. */
const CGROUPNS = existsSync('/sys/fs/cgroup/cgroup.controllers') ? 'host' : 'private';
const ENOSPC = 28;

const initScript = (dir: string): string => join(dir, 'init');
const notes = (dir: string, runtime: string): string => join(dir, `${runtime}-calls`);

/** A runtime that notes with what it was called. */
function notingRuntime(dir: string, name: string): string {
  const path = join(dir, name);
  writeFileSync(path, `#!/bin/sh\necho "$*" >> ${notes(dir, name)}\nexec runc "$@"\n`, { mode: 0o755 });
  writeFileSync(notes(dir, name), '');
  return path;
}

const MANY_LINES = 'i=0; while [ $i -lt 1000 ]; do echo "line $i of many lines"; i=$((i + 1)); done';

async function logFiles(scene: Scene): Promise<string[]> {
  const dir = join(scene.engine.dir, 'data/containers', await scene.id('talker'));
  return readdirSync(join(dir, 'local-logs')).toSorted();
}

export const containers: Group = {
  title: 'defaults of containers',
  setUp(dir) {
    writeFileSync(initScript(dir), '#!/bin/sh\nshift\nBEGUN_BY=init exec "$@"\n', { mode: 0o755 });
    const seccomp = join(dir, 'seccomp.json');
    // No kernel and no other profile refuses a link in this way.
    const refusal = { names: ['symlink', 'symlinkat'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSPC };
    writeFileSync(seccomp, JSON.stringify({ defaultAction: 'SCMP_ACT_ALLOW', syscalls: [refusal] }));
    const runtimes = ['usual', 'other'].flatMap((name) => ['--add-runtime', `${name}=${notingRuntime(dir, name)}`]);
    const logOptions = ['--log-opt', 'max-size=10k', '--log-opt', 'max-file=2', '--log-opt', 'compress=false'];
    const log = ['--log-driver', 'local', ...logOptions];
    const namespaces = ['--default-cgroupns-mode', CGROUPNS, '--default-ipc-mode', 'shareable'];
    const init = ['--init', '--init-path', initScript(dir), '--default-shm-size', '9m'];
    const limits = ['--default-ulimit', 'nofile=123:456', '--no-new-privileges', '--seccomp-profile', seccomp];
    return {
      args: [...namespaces, ...init, ...limits, ...runtimes, '--default-runtime', 'usual', ...log],
      env: { ENGINE_RAMDISK: '1' },
    };
  },
  rows: {
    defaultCgroupnsMode: async (scene) => {
      const isShared = readlinkSync(`/proc/${await scene.pid(ONE)}/ns/cgroup`) === readlinkSync('/proc/self/ns/cgroup');
      assert.equal(isShared, CGROUPNS === 'host');
    },
    defaultIpcMode: async (scene) => {
      await scene.docker('exec', ONE, 'sh', '-c', 'echo shared > /dev/shm/note');
      assert.equal(await scene.run(['--ipc', `container:${ONE}`], 'cat', '/dev/shm/note'), 'shared');
    },
    defaultShmSizeBytes: async (scene) => {
      assert.match(await scene.proc(ONE, 'mountinfo'), / \/dev\/shm .*\bsize=9216k\b/);
    },
    defaultUlimits: async (scene) => {
      assert.match(await scene.proc(ONE, 'limits'), /^Max open files +123 +456 /m);
    },
    init: async (scene) => {
      assert.equal(await scene.run([], 'sh', '-c', 'echo $BEGUN_BY'), 'init');
      assert.equal(await scene.run(['--init=false'], 'sh', '-c', 'echo $BEGUN_BY'), '');
    },
    initPath: async (scene) => {
      const script = readFileSync(initScript(scene.dir), 'utf8').trimEnd();
      assert.equal(await scene.run(['--init'], 'cat', '/sbin/docker-init'), script);
    },
    noNewPrivileges: async (scene) => {
      assert.match(await scene.proc(ONE, 'status'), /^NoNewPrivs:\t1$/m);
    },
    seccompProfile: async (scene) => {
      const { status, stderr } = await attempt(scene.engine, ['exec', ONE, 'ln', '-s', 'target', '/link']);
      assert.notEqual(status, 0);
      assert.match(stderr, /No space left on device/);
    },
    cgroupParent: async (scene) => {
      assert.ok((await scene.proc(ONE, 'cgroup')).includes(`:/${scene.mark}/${await scene.id(ONE)}\n`));
    },
    logDriver: async (scene) => {
      await scene.docker('run', '--name', 'talker', scene.image, 'sh', '-c', MANY_LINES);
      assert.ok((await logFiles(scene)).includes('container.log'));
      await waitFor('the last line', async () =>
        (await scene.docker('logs', '--tail', '1', 'talker')).startsWith('line 999 '),
      );
    },
    logOpts: async (scene) => {
      assert.deepEqual(await logFiles(scene), ['container.log', 'container.log.1']);
    },
    defaultRuntime: async (scene) => {
      assert.ok(readFileSync(notes(scene.dir, 'usual'), 'utf8').includes(await scene.id(ONE)));
    },
    runtimes: async (scene) => {
      assert.equal(readFileSync(notes(scene.dir, 'other'), 'utf8'), '');
      assert.equal(await scene.run(['--runtime', 'other'], 'echo', 'ran'), 'ran');
      assert.match(readFileSync(notes(scene.dir, 'other'), 'utf8'), / create .*--bundle /);
    },
    noPivotRoot: async (scene) => {
      const lines = readFileSync(notes(scene.dir, 'usual'), 'utf8').split('\n');
      assert.match(lines.find((line) => line.includes(' create ')) ?? '', / --no-pivot /);
    },
  },
};
