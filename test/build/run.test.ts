/** RUN of builds by BuildKit's door: what its process gets, what is said of its end, and that nothing of it stays. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { bytesOf, outputOf, topLayerOf } from '../support/build-output.js';
import { Buildx, type BuildxResult } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { processesOf } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'run-'));
const LABS = '# syntax=docker/dockerfile:1-labs\n';
const kind = engined({ file: { builder: { entitlements: { 'security-insecure': true } } } });
let engine: Engine;
let image: string;
let buildx: Buildx;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, kind));
  buildx = new Buildx(join(directory, 'work'), engine.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Builds instructions over the image, without the cache. */
const build = (instructions: string, ...args: readonly string[]): Promise<BuildxResult> =>
  buildx.ok(['build', '--no-cache', ...args, '-'], { input: `FROM ${image}\n${instructions}\n` });

async function refused(instructions: string, ...args: readonly string[]): Promise<string> {
  const { status, stderr } = await buildx.run(['build', ...args, '-'], { input: instructions });
  assert.equal(status, 1, stderr);
  return stderr;
}

const failure = (instructions: string, ...args: readonly string[]): Promise<string> =>
  refused(`FROM ${image}\n${instructions}\n`, ...args);

/** Command lines of the shims of steps. Shims of others may wait for the next container. */
const shims = (): string[] =>
  processesOf(engine.dir).flatMap(({ command }) =>
    /^\S*containerd-shim-\S+ -/.test(command) && !command.includes(' -id shared-') ? [command] : [],
  );

/** Names below the directories that steps use, of which there is nothing between builds. */
function remains(): string[] {
  const namesIn = (path: string): string[] => {
    try {
      return readdirSync(path).map((name) => `${path}/${name}`);
    } catch {
      return [];
    }
  };
  const { dir } = engine;
  const places = ['exec/io', 'exec/places', 'exec/netns', 'exec/agents', 'data/overlay2/writable'];
  return places.flatMap((path) => namesIn(join(dir, path)));
}

describe('RUN', { skip }, () => {
  test('has the variables, names and directory that the build says, and none of these files in its layer', async () => {
    const built = await build(
      'ENV A=env PLAIN=p\nARG A=arg\nARG B=b\nUSER 7:8\nWORKDIR /made/here\nRUN env | sort; id -u; pwd; hostname; ' +
        'cat /etc/hosts; test -s /etc/resolv.conf && touch /tmp/x; test ! -e /.dockerenv; df -k /dev/shm | tail -1; ' +
        'ulimit -n; wc -c; touch /etc/hosts 2>&1 || true',
      '--add-host=friend:192.0.2.7',
      '--shm-size=5m',
      '--ulimit=nofile=77:88',
      '--build-arg=http_proxy=http://p',
      '--build-arg=BUILDKIT_SANDBOX_HOSTNAME=named',
    );
    const lines = outputOf(built);
    const [variables, rest] = [lines.filter((line) => /^\w+=/.test(line)), lines.filter((line) => !/^\w+=/.test(line))];
    assert.deepEqual(
      variables.filter((line) => !/^(?:SHLVL|PWD|PATH|HOME|BUILDKIT_\w+)=/.test(line)),
      ['A=arg', 'B=b', 'HTTP_PROXY=http://p', 'PLAIN=p', 'http_proxy=http://p'],
    );
    assert.deepEqual(rest.slice(0, 3), ['7', '/made/here', 'named']);
    assert.ok(rest.includes('127.0.0.1\tlocalhost named'), rest.join('\n'));
    assert.ok(rest.includes('192.0.2.7\tfriend'));
    assert.ok(rest.some((line) => /\b5120\b.*\/dev\/shm$/.test(line)));
    assert.ok(rest.includes('77'));
    assert.ok(rest.includes('0'), 'its standard input is empty');
    assert.match(rest.at(-1) ?? '', /Read-only file system/);
  });

  test('leaves only what it has changed itself', async () => {
    const scratch = '\nFROM scratch\nCOPY --from=0 /bin /bin\nRUN echo x > /new\n';
    await build(`RUN cat /etc/hosts /etc/resolv.conf${scratch}`, '-t', 'changed');
    // dockerd leaves the places of the kernel's own file systems, too.
    assert.deepEqual(await topLayerOf(engine, 'changed'), ['dev/', 'new', 'proc/', 'sys/']);
  });

  test('takes scripts and programs from heredocs', async () => {
    const built = await build(
      'RUN <<EOF\necho script of $0 $HOME\nEOF\nRUN <<EOF\n#!/bin/cat\nprogram $HOME\nEOF\n' +
        'RUN <<-EOF\n\t\techo no tabs\n\tEOF\nRUN <<"EOF"\necho \'$quoted\'\nEOF\n' +
        'RUN cat <<A && cat <<"B"\nfirst $HOME\nA\nsecond $HOME\nB\n',
    );
    const expected = ['script of /bin/sh /root', '#!/bin/cat', 'program $HOME', 'no tabs', '$quoted', 'first /root'];
    assert.deepEqual(outputOf(built), [...expected, 'second $HOME']);
  });

  test('says how a process has ended, and why one was not started', async () => {
    const ended = (code: number): RegExp => new RegExp(`did not complete successfully: exit code: ${code}$`, 'm');
    assert.match(await failure('RUN echo last words; exit 7'), ended(7));
    assert.match(await failure("RUN sh -c 'kill -9 $$'; exit $?"), ended(137));
    const absent = await failure('RUN ["nothing"]');
    assert.match(absent, ended(1));
    assert.match(absent, /exec: "nothing": executable file not found in \$PATH/);
    assert.match(
      await failure('USER nobody2\nRUN true'),
      /: unable to find user nobody2: no matching entries in passwd/,
    );
    assert.match(await failure('RUN --device=foo true'), /solve: device feature is only supported in Dockerfile front/);
  });

  test('keeps every byte of lines without an end', async () => {
    // More than a message to a client may have.
    const bytes = 6 << 20;
    const script = `head -c ${bytes} /dev/zero | tr '\\0' x; echo; echo end >&2`;
    const built = await buildx.ok(['build', '--progress', 'rawjson', '-'], { input: `FROM ${image}\nRUN ${script}\n` });
    const text = bytesOf(built).toString();
    assert.equal(text.replaceAll(/[^x]+/g, '').length, bytes);
    assert.match(text, /end\n/);
  });

  test('has the network that it asks for', async () => {
    const links = 'ls /sys/class/net | tr "\\n" ,; echo';
    const built = await build(`RUN ${links}\nRUN --network=none ${links}; grep -c localhost /etc/hosts\n`);
    assert.deepEqual(outputOf(built), ['eth0,lo,', 'lo,', '2']);
    assert.deepEqual(outputOf(await build(`RUN ${links}`, '--network', 'none')), ['lo,']);
    const host = await build(`RUN --network=host ${links}`, '--allow', 'network.host');
    assert.ok(outputOf(host).join().includes(kind.mark), 'it sees the links of the host');
    const text = await failure('RUN echo not run\nRUN --network=host true');
    assert.match(text, /solve: failed to load LLB: network\.host is not allowed/);
    assert.doesNotMatch(text, /^#\d+ \d+\.\d+ not run/m);
  });

  test('builder.entitlements: what the configuration allows and the client grants', async () => {
    const insecure = `${LABS}FROM ${image}\nRUN --security=insecure grep CapEff /proc/self/status\n`;
    const allowed = await buildx.ok(['build', '--allow', 'security.insecure', '-'], { input: insecure });
    const [capabilities = ''] = outputOf(allowed);
    const plain = outputOf(await build('RUN grep CapEff /proc/self/status'))[0] ?? '';
    const count = (line: string): number =>
      BigInt(`0x${line.split('\t')[1] ?? '0'}`)
        .toString(2)
        .replaceAll('0', '').length;
    assert.ok(count(capabilities) > count(plain), `${capabilities} is more than ${plain}`);
    assert.match(await refused(insecure), /failed to load LLB: security\.insecure is not allowed/);
    assert.match(await failure('RUN --security=insecure true'), /unknown flag: --security/);
  });

  test('is in no list and no event, and ends with its build', async () => {
    const since = Math.floor(Date.now() / 1000);
    const session = buildx.start(['build', '--no-cache', '-'], {
      input: `FROM ${image}\nRUN true\nRUN echo up; sleep 31337\n`,
    });
    await session.said(/ up$/m);
    // The shim of the first step serves the second.
    await waitFor('the first step to go', () => readdirSync(join(engine.dir, 'exec/io')).length === 1);
    const [second = ''] = readdirSync(join(engine.dir, 'exec/io'));
    assert.ok(shims().length <= 1 && !shims().join().includes(second), shims().join('\n'));
    assert.deepEqual(await callJson(engine.socketPath, 'GET', '/containers/json?all=1'), []);
    assert.notDeepEqual(remains(), []);
    session.kill('SIGINT');
    assert.notEqual((await session.ended).status, 0);
    await waitFor('what the steps had to go', () => remains().length === 0 && shims().length === 0);
    const until = Math.ceil(Date.now() / 1000) + 1;
    const events = await engineOk(engine, ['events', '--since', `${since}`, '--until', `${until}`]);
    assert.doesNotMatch(events, / (?:container|network) /);
  });

  test('leaves nothing when the daemon is killed', async () => {
    const session = buildx.start(['build', '--no-cache', '-'], {
      input: `FROM ${image}\nRUN true\nRUN --mount=type=tmpfs,target=/t echo up; exec sleep 31338\n`,
    });
    await session.said(/ up$/m);
    const hasStep = (): boolean =>
      readdirSync('/proc').some((pid) => {
        try {
          return readFileSync(`/proc/${pid}/cmdline`, 'latin1') === 'sleep\x0031338\0';
        } catch {
          return false;
        }
      });
    await waitFor('the process of the step', hasStep);
    await engine.stop('SIGKILL');
    await session.ended;
    await engine.start();
    assert.equal(hasStep(), false);
    assert.deepEqual([...remains(), ...shims()], []);
    await build('RUN true');
  });

  test('nothing of the steps is left', async () => {
    await waitFor('what the steps had to go', () => remains().length === 0);
  });
});
