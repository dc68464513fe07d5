/**
 * Changes of limits and policies while a container runs, and what the restart policies do. Passes against dockerd, too.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, callJson } from '../support/http.js';
import { Lives, now, refused } from '../support/lives.js';

const lives = new Lives();

describe('update', () => {
  const cgroupFile = (pid: number, controller: string, file: string): string => {
    const path = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      .split('\n')
      .find((line) => line.split(':')[1]?.split(',').includes(controller))
      ?.split(':')[2];
    return readFileSync(join('/sys/fs/cgroup', controller, path ?? '', file), 'utf8').trim();
  };

  test('limits of a running container change at once and stay for the next start', async (t) => {
    if (!existsSync('/sys/fs/cgroup/memory/memory.limit_in_bytes')) return t.skip('looks into cgroup v1');
    const since = now();
    const id = await lives.runDetached('web', 'sleep 1000', '--memory', '64m');
    await lives.ok(
      'update',
      '--memory',
      '96m',
      '--memory-swap',
      '200m',
      '--cpu-shares',
      '512',
      '--pids-limit',
      '50',
      '--cpuset-cpus',
      '0',
      '--cpu-quota',
      '30000',
      '--cpu-period',
      '100000',
      'web',
    );
    const check = async (): Promise<void> => {
      const { State, HostConfig } = await lives.inspect('web');
      assert.deepEqual(
        [
          HostConfig['Memory'],
          HostConfig['MemorySwap'],
          HostConfig['CpuShares'],
          HostConfig['PidsLimit'],
          HostConfig['CpusetCpus'],
        ],
        [96 << 20, 200 << 20, 512, 50, '0'],
      );
      assert.equal(cgroupFile(State.Pid, 'memory', 'memory.limit_in_bytes'), String(96 << 20));
      assert.equal(cgroupFile(State.Pid, 'memory', 'memory.memsw.limit_in_bytes'), String(200 << 20));
      assert.equal(cgroupFile(State.Pid, 'cpu', 'cpu.shares'), '512');
      assert.equal(cgroupFile(State.Pid, 'pids', 'pids.max'), '50');
      assert.equal(cgroupFile(State.Pid, 'cpu', 'cpu.cfs_quota_us'), '30000');
      assert.equal(cgroupFile(State.Pid, 'cpuset', 'cpuset.cpus'), '0');
    };
    await check();
    // A limit changed alone leaves the policy as it is.
    await lives.ok('update', '--restart', 'unless-stopped', 'web');
    await lives.ok('update', '--cpu-shares', '512', 'web');
    assert.deepEqual((await lives.inspect('web')).HostConfig['RestartPolicy'], {
      Name: 'unless-stopped',
      MaximumRetryCount: 0,
    });
    await lives.ok('restart', '-t', '0', 'web');
    await check();
    assert.ok((await lives.events(since, id)).includes('update'));
    await lives.ok('stop', '-t', '0', 'web');
    await lives.ok('update', '--memory', '80m', 'web');
    await lives.ok('start', 'web');
    assert.equal(
      cgroupFile((await lives.inspect('web')).State.Pid, 'memory', 'memory.limit_in_bytes'),
      String(80 << 20),
    );
  });

  test('what cannot be is refused and changes nothing', async () => {
    await lives.runDetached('web', 'sleep 1000', '--memory', '64m', '--memory-swap', '64m');
    const before = (await lives.inspect('web')).HostConfig;
    await refused(
      lives.post('/containers/web/update', { Memory: 128 << 20 }),
      409,
      /container \w{64}: .*should be smaller than already set memoryswap limit, update the memoryswap at the same/,
    );
    await refused(
      lives.post('/containers/web/update', { Memory: 1000 }),
      400,
      /Minimum memory limit allowed is \d+MB/i,
    );
    await refused(lives.post('/containers/web/update', { CpusetCpus: '400' }), 400, /CPUs|cpus/);
    await refused(
      lives.post('/containers/web/update', { RestartPolicy: { Name: 'sometimes' } }),
      400,
      /restart policy/,
    );
    await refused(
      lives.post('/containers/web/update', { RestartPolicy: { Name: 'always', MaximumRetryCount: 4 } }),
      400,
      /maximum retry count/,
    );
    assert.deepEqual((await lives.inspect('web')).HostConfig, before);
    await lives.runDetached('half', 'sleep 1000', '--cpus', '0.5');
    await refused(
      lives.post('/containers/half/update', { CpuQuota: 20_000 }),
      409,
      /Conflicting options: CPU Quota cannot be updated as NanoCPUs has already been set/,
    );
    await lives.runDetached('fleeting', 'sleep 1000', '--rm');
    await refused(
      lives.post('/containers/fleeting/update', { RestartPolicy: { Name: 'always' } }),
      409,
      /Restart policy cannot be updated because AutoRemove is enabled for the container/,
    );
    await refused(lives.post('/containers/nobody/update', { CpuShares: 5 }), 404, /No such container/);
  });

  test('a restart policy given later holds', async () => {
    await lives.runTrapping('web');
    await lives.ok('update', '--restart', 'on-failure:1', 'web');
    assert.deepEqual((await lives.inspect('web')).HostConfig['RestartPolicy'], {
      Name: 'on-failure',
      MaximumRetryCount: 1,
    });
    const crash = async (): Promise<void> => {
      const { State } = await lives.until('web', 'a process', ({ State: { Pid } }) => Pid > 1);
      process.kill(State.Pid, 'SIGKILL');
    };
    await crash();
    await lives.until(
      'web',
      'one restart',
      ({ RestartCount, State: { Running, Restarting } }) => RestartCount === 1 && Running && !Restarting,
    );
    await crash();
    await lives.until('web', 'the end', ({ State: { Running } }) => !Running);
    assert.equal((await lives.inspect('web')).RestartCount, 1);
  });
});

describe('restart policies', () => {
  test('on-failure counts its tries, and a success ends them', async () => {
    await lives.runDetached('failing', 'exit 3', '--restart', 'on-failure:2');
    const found = await lives.until(
      'failing',
      'the last try',
      ({ RestartCount, State }) => RestartCount === 2 && State.Status === 'exited',
    );
    assert.equal(found.State.ExitCode, 3);
    await lives.runDetached('fine', 'exit 0', '--restart', 'on-failure:2');
    await lives.until('fine', 'the end', ({ State }) => State.Status === 'exited');
    await sleep(300);
    assert.equal((await lives.inspect('fine')).RestartCount, 0);
    await lives.ok('start', 'failing');
    await lives.until(
      'failing',
      'the count begins anew',
      ({ RestartCount, State }) => RestartCount === 2 && State.Status === 'exited',
    );
  });

  test('always comes back after ever longer pauses, until it is stopped', async () => {
    const since = now();
    const id = await lives.runDetached('web', 'exit 1', '--restart', 'always');
    await lives.until('web', 'four restarts and the pause before the fifth', ({ RestartCount }) => RestartCount > 4);
    const { State } = await lives.until('web', 'a pause', ({ State: { Restarting } }) => Restarting);
    assert.deepEqual(
      { status: State.Status, running: State.Running, pid: State.Pid, code: State.ExitCode },
      { status: 'restarting', running: true, pid: 0, code: 1 },
    );
    assert.match(await lives.ok('ps', '--format', '{{.Status}}'), /^Restarting \(1\) .* ago$/);
    await refused(
      lives.post('/containers/web/exec', { Cmd: ['true'] }),
      409,
      /is restarting, wait until the container is running/,
    );
    await refused(call(lives.engine.socketPath, 'DELETE', '/containers/web'), 409, /restarting/);
    await lives.ok('stop', 'web');
    const stopped = await lives.inspect('web');
    assert.equal(stopped.State.Status, 'exited');
    await sleep(2000);
    assert.equal((await lives.inspect('web')).RestartCount, stopped.RestartCount);
    const starts = (
      await call(
        lives.engine.socketPath,
        'GET',
        `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}` +
          `&filters=${encodeURIComponent(JSON.stringify({ container: [id], event: ['start', 'die'] }))}`,
      )
    ).text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { Action: string; timeNano: number });
    const pauses = starts.flatMap((event, index) =>
      event.Action === 'start' && index > 0 ? [(event.timeNano - (starts[index - 1]?.timeNano ?? 0)) / 1e6] : [],
    );
    // Its history is too short for this.
    if (lives.engine.name === 'dockerd') return;
    // Only that they grow: what else the host does is added to each.
    for (const [index, least] of [100, 200, 400, 800].entries())
      assert.ok((pauses[index] ?? 0) >= least * 0.95, `pauses of ${pauses.join(', ')} ms`);
  });

  test('a waiter hears of the first exit, though the container comes back', async () => {
    await lives.ok('create', '--name', 'web', '--restart', 'always', lives.image, 'sh', '-c', 'exit 5');
    const waiting = callJson<{ StatusCode: number }>(
      lives.engine.socketPath,
      'POST',
      '/containers/web/wait?condition=next-exit',
    );
    await lives.ok('start', 'web');
    assert.equal((await waiting).StatusCode, 5);
    await lives.ok('rm', '-f', 'web');
  });

  test('after a crash of the daemon: always and on-failure go on, unless-stopped remembers a stop', async (t) => {
    if (lives.engine.name === 'dockerd') return t.skip('its containers end with it');
    for (const [name, policy] of [
      ['always', 'always'],
      ['unless', 'unless-stopped'],
      ['unless-down', 'unless-stopped'],
      ['no', 'no'],
    ] as const)
      await lives.runTrapping(name, '--restart', policy);
    await lives.runDetached('failed', 'echo begun; sleep 1; exit 4', '--restart', 'on-failure');
    await lives.ok('stop', '-t', '0', 'unless-down');
    await lives.engine.stop('SIGKILL');
    // While the daemon is away they end.
    await sleep(1300);
    await lives.engine.start();
    await lives.until('failed', 'another try', ({ RestartCount }) => RestartCount >= 1);
    const states = async (): Promise<Record<string, string>> =>
      Object.fromEntries(
        await Promise.all(
          ['always', 'unless', 'unless-down', 'no'].map(
            async (name) => [name, (await lives.inspect(name)).State.Status] as const,
          ),
        ),
      );
    assert.deepEqual(await states(), { always: 'running', unless: 'running', 'unless-down': 'exited', no: 'running' });
    await lives.ok('stop', '-t', '0', 'always');
    assert.equal(await lives.engine.stop('SIGTERM'), 0);
    await lives.engine.start();
    await lives.until('always', 'its start', ({ State }) => State.Running);
    await lives.until('unless', 'its start', ({ State }) => State.Running);
    assert.deepEqual(await states(), { always: 'running', unless: 'running', 'unless-down': 'exited', no: 'exited' });
  });
});
