/**
 * A project such as people have, with the unmodified `docker compose` of today: the CLI's plugin, which speaks to the
 * daemon itself. The same file passes against the original (ENGINE_UNDER_TEST=dockerd).
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import { composePlugins, composeProgram, dockerCli, SHORT_LIVED } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { waitFor } from '../support/wait.js';

const PLUGINS = composePlugins();
/** A command that hangs is ended after this time. */
const PATIENCE_MS = 120_000;

const directory = mkdtempSync(join(tmpdir(), 'compose-'));
const cleanup = new Cleanup();
let engine: Engine;

interface Result {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Running {
  readonly child: ChildProcessByStdio<Writable | null, Readable, Readable>;
  readonly ended: Promise<Result>;
}

/**
 * The CLI runs these. It starts the plugin twice and asks it first what it is, which takes longer than what most
 * commands do; so others are given to the plugin as they are, which also is a program of its own.
 */
const BY_CLI: ReadonlySet<string | undefined> = new Set(['up', 'run', 'watch', 'down']);

/** Starts `docker compose` in the project's directory. Its input is `/dev/null` unless there is one. */
function begin([command, ...args]: readonly string[], input?: string): Running {
  const isByCli = BY_CLI.has(command) || input !== undefined;
  const [program, words] = isByCli ? [dockerCli(), ['compose']] : [composeProgram(), []];
  const child = spawn(program, [...words, '--progress', 'plain', command ?? '', ...args], {
    cwd: directory,
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: {
      ...process.env,
      ...SHORT_LIVED,
      HOME: directory,
      DOCKER_HOST: engine.host,
      DOCKER_CONFIG: join(directory, 'cli'),
    },
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  }) as Running['child'];
  child.stdin?.on('error', () => undefined).end(input);
  const all = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { child, ended: all.then(([stdout, stderr]) => ({ status: child.exitCode, stdout, stderr })) };
}

const run = (args: readonly string[], input?: string): Promise<Result> => begin(args, input).ended;

/** Returns what the command printed to stdout; throws with all that it printed when it fails. */
async function compose(...args: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await run(args);
  assert.equal(status, 0, `compose ${args.join(' ')}: ${stderr}${stdout}`);
  return stdout.trim();
}

/** The name of each container, sorted, and its ID. */
async function ids(): Promise<Record<string, string>> {
  const lines = (await dockerOk(engine, ['ps', '-a', '--no-trunc', '--format', '{{.Names}} {{.ID}}'])).split('\n');
  return Object.fromEntries(lines.sort().map((line) => line.split(' ')));
}

/** The image, and what the tests change, are in the file `.env`. */
const PROJECT = `
name: shop
x-common: &common
  image: \${IMAGE}
  init: true
  stop_grace_period: 2s
  restart: unless-stopped
  logging: {driver: json-file, options: {max-size: 1m, max-file: '2', tag: '{{.Name}}'}}
services:
  db:
    <<: *common
    command: [sh, -c, 'touch /tmp/ready; exec sleep 1000']
    healthcheck: {test: [CMD, test, -e, /tmp/ready], interval: 60s, start_interval: 100ms, start_period: 60s}
    volumes: ['data:/var/lib/data']
    networks: {back: {aliases: [store], ipv4_address: 10.217.5.50}}
    cap_drop: [ALL]
    cap_add: [CHOWN]
    deploy: {resources: {limits: {cpus: '0.50', memory: 64M, pids: 60}}}
  migrate:
    image: \${IMAGE}
    command: [sh, -c, 'nslookup store 127.0.0.11 && cat /run/secrets/key && echo migrated']
    depends_on: {db: {condition: service_healthy}}
    networks: [back]
    secrets: [{source: password, target: key}]
  api:
    <<: *common
    command: [sh, -c, 'mkdir /tmp/w; echo served > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w']
    depends_on: {db: {condition: service_healthy, restart: true}, migrate: {condition: service_completed_successfully}}
    env_file: [app.env, {path: missing.env, required: false}]
    environment: ['EXTRA=\${CHANGED}']
    networks: {front: {aliases: [www]}, back: {}}
    secrets: [password]
    configs: [{source: app, target: /etc/app.conf}]
    ports: ['127.0.0.1::8080', {target: 9090, host_ip: 127.0.0.1, protocol: udp}]
    read_only: true
    tmpfs: ['/tmp:size=1m']
    ulimits: {nofile: {soft: 1000, hard: 2000}}
    sysctls: {net.core.somaxconn: 333}
    extra_hosts: ['elsewhere=192.0.2.77']
    hostname: apihost
    group_add: ['1234']
    shm_size: 32m
    security_opt: [no-new-privileges:true]
    healthcheck: {test: wget -q -O - 127.0.0.1:8080, interval: 60s, start_interval: 100ms, start_period: 60s}
  worker:
    <<: *common
    init: false
    command: [sh, -c, 'trap "echo usr1" USR1; trap "echo bye; exit 3" TERM; echo up; while :; do sleep 99 & wait; done']
    depends_on: [db]
    networks: [back]
    volumes: ['./src:/src:ro', 'data:/data', 'memory:/memory']
    configs: [{source: inline, target: /etc/inline.conf}]
    develop: {watch: [{action: sync, path: ./live, target: /live}]}
  sidecar:
    <<: *common
    command: [sleep, '1000']
    network_mode: service:api
    depends_on: [api]
  tool:
    image: \${IMAGE}
    profiles: [tools]
    command: [sh, -c, 'cat; echo end; exit 4']
    stdin_open: true
    network_mode: none
networks:
  front: {driver_opts: {com.docker.network.driver.mtu: '1400'}}
  back: {internal: true, ipam: {config: [{subnet: 10.217.5.0/24, ip_range: 10.217.5.0/27}]}}
volumes:
  data: {labels: {kept: 'no'}}
  memory: {driver_opts: {type: tmpfs, device: tmpfs, o: size=1m}}
secrets: {password: {file: ./password.txt}}
configs: {app: {file: ./app.conf}, inline: {content: "from the project\\n"}}
`;

describe('docker compose', { skip: PLUGINS === undefined && 'needs docker compose: node scripts/peers.mjs' }, () => {
  /** Changes the service `api`. */
  let write: (changed: string) => void;
  before(async () => {
    cleanup.add(async () => rmSync(directory, { recursive: true }));
    const { engine: started, image } = await startEngineWithImage(cleanup);
    engine = started;
    for (const name of ['cli', 'src', 'live']) mkdirSync(join(directory, name));
    writeFileSync(join(directory, 'cli/config.json'), JSON.stringify({ cliPluginsExtraDirs: [PLUGINS] }));
    writeFileSync(join(directory, 'password.txt'), 's3cret\n');
    writeFileSync(join(directory, 'app.conf'), 'conf=1\n');
    writeFileSync(join(directory, 'app.env'), 'MODE="a quoted value"\n');
    writeFileSync(join(directory, 'src/a.txt'), 'hello\n');
    writeFileSync(join(directory, 'compose.yml'), PROJECT);
    write = (changed) => writeFileSync(join(directory, '.env'), `IMAGE=${image}\nCHANGED=${changed}\n`);
    write('first');
  });
  after(() => cleanup.run());

  test('up --wait starts each service when those that it depends on are healthy or have ended', async () => {
    const since = String(Date.now() / 1000);
    await compose('up', '-d', '--wait');
    const filters = ['create', 'start', 'die', 'health_status'].flatMap((event) => ['--filter', `event=${event}`]);
    const format = '{{.Action}} {{index .Actor.Attributes "com.docker.compose.service"}}';
    const until = String(Date.now() / 1000);
    const events = (
      await dockerOk(engine, ['events', '--since', since, '--until', until, ...filters, '--format', format])
    )
      .split('\n')
      .filter((line) => /db|migrate|api/.test(line) && !line.startsWith('create'));
    assert.deepEqual(events, [
      'start db',
      'health_status: healthy db',
      'start migrate',
      'die migrate',
      'start api',
      'health_status: healthy api',
    ]);
    const states = (await compose('ps', '-a', '--format', 'json')).split('\n').map((line) => {
      const { Service, State, Health, ExitCode } = JSON.parse(line) as Record<string, unknown>;
      return [Service, State, Health, ExitCode].join(' ');
    });
    assert.deepEqual(states.sort(), [
      'api running healthy 0',
      'db running healthy 0',
      'migrate exited  0',
      'sidecar running  0',
      'worker running  0',
    ]);
    assert.match(await compose('logs', '--no-log-prefix', 'migrate'), /10\.217\.5\.50\n[^]*s3cret\nmigrated$/);
  });

  test('settings of the services are in effect', async () => {
    const api =
      'echo $MODE, $EXTRA; id -G; cat /run/secrets/password /etc/app.conf; hostname; grep elsewhere /etc/hosts; ' +
      'ulimit -Hn; cat /proc/sys/net/core/somaxconn; touch /x 2>&1; df -k /tmp /dev/shm | awk "NR > 1 {print \\$2}"; ' +
      'grep NoNewPrivs /proc/self/status; cat /sys/class/net/eth*/mtu | sort; cat /proc/1/comm';
    assert.equal(
      (await run(['exec', '-T', 'api', 'sh', '-c', api])).stdout,
      'a quoted value, first\n0 1234\ns3cret\nconf=1\napihost\n192.0.2.77\telsewhere\n2000\n333\n' +
        'touch: /x: Read-only file system\n1024\n32768\nNoNewPrivs:\t1\n1400\n1500\ndocker-init\n',
    );
    const db =
      'grep CapEff /proc/self/status; cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; ' +
      'echo shared > /var/lib/data/file';
    assert.match((await run(['exec', '-T', 'db', 'sh', '-c', db])).stdout, /CapEff:\t0+1\n67108864\n/);
    // It finds others by all the names that they have on its networks, and shares a volume.
    const worker =
      'wget -q -O - http://api:8080/; nslookup store | grep -c 10.217.5.50; nslookup www 2>&1 | ' +
      'grep -c 10.217; cat /src/a.txt /etc/inline.conf; touch /src/b 2>&1; ' +
      'df -k /memory | awk "NR > 1 {print \\$2}"; cat /data/file';
    assert.equal(
      (await run(['exec', '-T', 'worker', 'sh', '-c', worker])).stdout,
      'served\n1\n0\nhello\nfrom the project\ntouch: /src/b: Read-only file system\n1024\nshared\n',
    );
    assert.equal(await compose('exec', '-T', 'sidecar', 'wget', '-q', '-O', '-', 'http://127.0.0.1:8080/'), 'served');
  });

  test('run and exec pass on their input and its end', async () => {
    const outcome = async (args: readonly string[], input?: string): Promise<unknown> => {
      const { status, stdout } = await run(args, input);
      return [status, stdout];
    };
    assert.deepEqual(await outcome(['run', '--rm', '-T', 'tool']), [4, 'end\n']);
    assert.deepEqual(await outcome(['run', '--rm', '-T', 'tool'], 'piped\n'), [4, 'piped\nend\n']);
    assert.deepEqual(await outcome(['exec', '-T', 'api', 'sh', '-c', 'cat; exit 5']), [5, '']);
    assert.deepEqual(await outcome(['exec', '-T', 'api', 'cat'], 'piped\n'), [0, 'piped\n']);
  });

  test('cp, top, port, stats, pause, kill, logs and watch', async () => {
    await compose('cp', 'password.txt', 'db:/root/in');
    await compose('cp', 'db:/root/in', 'out');
    assert.equal(readFileSync(join(directory, 'out'), 'utf8'), 's3cret\n');
    assert.match(await compose('top', 'db'), /docker-init.*\n.*sleep 1000/);
    const address = await compose('port', 'api', '8080');
    assert.equal(await (await fetch(`http://${address}/index.html`)).text(), 'served\n');
    assert.match(await compose('port', '--protocol', 'udp', 'api', '9090'), /^127\.0\.0\.1:\d+$/);
    assert.match(await compose('stats', '--no-stream', '--format', '{{.Name}} {{.MemUsage}}', 'db'), /64MiB$/);
    await compose('pause', 'worker');
    assert.equal(await dockerOk(engine, ['inspect', '-f', '{{.State.Status}}', 'shop-worker-1']), 'paused');
    await compose('unpause', 'worker');
    await compose('kill', '-s', 'USR1', 'worker');
    await waitFor('the signal in the log', async () => /usr1/.test(await dockerOk(engine, ['logs', 'shop-worker-1'])));

    const watching = begin(['watch', '--no-up', 'worker']);
    let told = '';
    watching.child.stdout.on('data', (piece: Buffer) => (told += piece.toString()));
    watching.child.stderr.on('data', (piece: Buffer) => (told += piece.toString()));
    await waitFor(
      () => `the watch to begin; it printed ${told}`,
      () => /Watch enabled/.test(told),
    );
    writeFileSync(join(directory, 'live/new.txt'), 'new\n');
    await waitFor(
      () => `the file in the container; watch printed ${told}`,
      async () => (await docker(engine, ['exec', 'shop-worker-1', 'cat', '/live/new.txt'])).stdout === 'new\n',
    );
    watching.child.kill('SIGINT');
    await watching.ended;
  });

  test('wait and logs -f end with the container; a restart takes those along that depend on it', async () => {
    // Nothing tells when `wait` has begun. One that comes after the end finds no container, and is begun once more.
    const stopped = async (): Promise<{ status: number | null; since: string; following: Running }> => {
      const waiting = begin(['wait', 'worker']);
      const following = begin(['logs', '-f', '--no-log-prefix', 'worker']);
      await once(following.child.stdout, 'data');
      const since = String(Date.now() / 1000);
      await compose('stop', 'worker');
      const { status, stderr } = await waiting.ended;
      if (!/no containers? /i.test(stderr)) return { status, since, following };
      await following.ended;
      await compose('start', 'worker');
      return stopped();
    };
    const { status, since, following } = await stopped();
    assert.equal(status, 3);
    // Compose follows log and end at once, so its own line about the end may come before the last of the log.
    const lines = (await following.ended).stdout.split('\n').filter((line) => !line.endsWith('exited with code 3'));
    assert.match(lines.join('\n'), /up\n(usr1\n)?bye\n$/);
    await compose('start', 'worker');
    await compose('restart', '-t', '0', 'db');
    // It takes the end of the events for a failure, and prints them all the same.
    const events = await run(['events', '--json', '--since', since, '--until', String(Date.now() / 1000)]);
    const actions = events.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { action: string; service: string });
    assert.deepEqual(
      actions
        .filter(({ action }) => action === 'start' || action === 'restart')
        .map(({ service }) => service)
        .sort(),
      ['api', 'api', 'db', 'db', 'worker'],
    );
  });

  test('up makes anew only what has changed, and as many as are asked for', async () => {
    const first = await ids();
    write('second');
    await compose('up', '-d', '--wait', '--scale', 'worker=2');
    const second = await ids();
    const changed = Object.keys(second).filter((name) => second[name] !== first[name]);
    assert.deepEqual(changed, ['shop-api-1', 'shop-sidecar-1', 'shop-worker-2']);
    assert.equal(await compose('exec', '-T', 'api', 'sh', '-c', 'echo $EXTRA'), 'second');
    await compose('scale', 'worker=1');
    assert.deepEqual(Object.keys(await ids()), Object.keys(first));

    const attached = await run(['up', '--no-color', '--exit-code-from', 'migrate', 'migrate']);
    assert.equal(attached.status, 0, attached.stderr);
    assert.match(attached.stdout, /migrate-1 +\| migrated\n/);
  });

  test('down leaves nothing', async () => {
    await compose('down', '-v', '--remove-orphans');
    assert.equal(await dockerOk(engine, ['ps', '-aq']), '');
    assert.equal(await dockerOk(engine, ['volume', 'ls', '-q']), '');
    assert.equal(await dockerOk(engine, ['network', 'ls', '-q', '--filter', 'type=custom']), '');
  });
});
