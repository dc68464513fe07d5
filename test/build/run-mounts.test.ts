/** RUN --mount: what each type gives to a step, and what of it stays. */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { outputOf, topLayerOf } from '../support/build-output.js';
import { Buildx, type BuildxResult } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { freePort } from '../support/free-port.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'run-mounts-'));
let engine: Engine;
let image: string;
let buildx: Buildx;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  buildx = new Buildx(join(directory, 'work'), engine.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Builds the directory `ctx`, without the cache and a network, which takes a while to make. */
function start(instructions: string, args: readonly string[]): ReturnType<Buildx['start']> {
  return buildx.start(['build', '--no-cache', '--network=none', '-f', '-', ...args, '.'], {
    in: 'ctx',
    input: instructions.replace(/^(?!FROM|# )/, `FROM ${image}\n`),
  });
}

async function build(instructions: string, ...args: readonly string[]): Promise<string[]> {
  const result = await start(`${instructions}\n`, args).ended;
  assert.equal(result.status, 0, result.stderr);
  return outputOf(result);
}

async function failure(instructions: string, ...args: readonly string[]): Promise<string> {
  const result: BuildxResult = await start(`${instructions}\n`, args).ended;
  assert.equal(result.status, 1, result.stderr);
  return result.stderr;
}

/** Files of the daemon that contain a text, among all of them. */
function filesWith(marker: string): string {
  return spawnSync('grep', ['-raFl', marker, engine.dir], { encoding: 'utf8' }).stdout;
}

describe('RUN --mount', { skip }, () => {
  before(() => {
    buildx.write('ctx/file', 'of the context');
    buildx.write('ctx/sub/inner', 'inside');
    buildx.write('ctx/left-out', 'left out');
    buildx.write('ctx/.dockerignore', 'left-out\n');
    symlinkSync('../../../../../../etc', join(buildx.directory, 'ctx/sub/escape'));
  });

  test('bind shows the context to everybody, read-only, and a stage by its links, which stay inside', async () => {
    const lines = await build(
      `FROM ${image} AS other\nRUN mkdir -p /o/real && echo staged > /o/real/f && ln -s /o/real /o/link && ` +
        `ln -s ../../../../../../../../etc /o/escape\nFROM ${image}\nWORKDIR /w\nUSER 7\n` +
        // buildx prints the last line again when another step comes between, unless that line has an end.
        'RUN --mount=target=. cat file; ls; touch x 2>&1 || { cat sub/inner; echo; }\n' +
        'RUN --mount=from=other,source=/o/link,target=/deep/er/at ' +
        '--mount=from=other,source=/o/escape,target=/etc2 cat /deep/er/at/f /etc2/passwd',
      '-t',
      'bound',
    );
    assert.deepEqual(lines.slice(0, 4), ['of the contextfile', 'sub', 'touch: x: Read-only file system', 'inside']);
    assert.equal(lines[4], 'staged');
    assert.match(lines[5] ?? '', /^root:/);
    // The directory of the places is there with its attributes, as in layers of dockerd.
    assert.deepEqual(await topLayerOf(engine, 'bound'), ['etc/'], 'places of mounts go with them');
  });

  test('bind with rw forgets what is written, also a single file', async () => {
    const write = '--mount=target=/c,rw --mount=source=file,target=/one,rw';
    const lines = await build(
      `RUN ${write} echo new > /c/file; echo new > /one; echo more > /c/sub/more; cat /c/file /one; ls -A /c/sub\n` +
        `RUN ${write} cat /c/file /one; ls -A /c/sub`,
    );
    assert.deepEqual(lines, ['new', 'new', 'escape', 'inner', 'more', 'of the contextof the contextescape', 'inner']);
  });

  test('bind shows no file that an ignore file leaves out', async () => {
    buildx.write('ctx/Dockerfile', `FROM ${image}\nRUN --mount=target=/c ls /c; cat /c/sub/inner\n`);
    const input = execFileSync('tar', ['-C', join(buildx.directory, 'ctx'), '-c', '.']);
    rmSync(join(buildx.directory, 'ctx/Dockerfile'));
    const lines = outputOf(await buildx.ok(['build', '--no-cache', '--network=none', '-'], { input }));
    assert.deepEqual(lines, ['Dockerfile', 'file', 'sub', 'inside']);
  });

  test('bind of nothing, and mounts of the root, are refused', async () => {
    assert.match(
      await failure('RUN --mount=source=absent,target=/x true'),
      /failed to solve: failed to compute cache key: failed to calculate checksum of ref \S+: "\/absent": not found/m,
    );
    assert.match(await failure('RUN --mount=type=tmpfs,target=/ true'), /solve: invalid mount target "\/"/);
    assert.match(await failure('RUN --mount=source=sub true'), /solve: invalid mount target "\/"$/m);
  });

  test('tmpfs is as large as it says, runs programs, and is empty each time', async () => {
    const mount = '--mount=type=tmpfs,target=/t,size=1m';
    const lines = await build(
      // Both outputs go to one pipe: two have no order.
      `RUN ${mount} exec 2>&1; cp /bin/busybox /t/sh && /t/sh true || cp /bin/true /t/; ` +
        'dd if=/dev/zero of=/t/x bs=64k count=64 2>&1 | head -1; stat -c %a /t\n' +
        `RUN ${mount} ls -A /t`,
      '-t',
      'tmpfs',
    );
    assert.match(lines.join('\n'), /No space left on device\n1777$/);
    assert.deepEqual(await topLayerOf(engine, 'tmpfs'), ['etc/']);
  });

  test('cache keeps its files over steps that fail, and knows users, names and what it begins with', async () => {
    const seeded = `--mount=type=cache,id=seeded,from=${image},source=/etc,target=/s`;
    const fails = 'RUN --mount=type=cache,target=/c echo kept > /c/f; exit 3';
    assert.match(await failure(fails), /exit code: 3$/m);
    const lines = await build(
      'RUN --mount=type=cache,target=/c cat /c/f\n' +
        'RUN --mount=type=cache,id=/c,target=/d,ro cat /d/f; touch /d/x 2>&1 || true\n' +
        'RUN --mount=type=cache,target=/own,uid=7,gid=8,mode=0711 stat -c "%a %u:%g" /own\n' +
        `RUN ${seeded} rm /s/passwd && echo had\nRUN ${seeded} ls /s/passwd 2>&1 || true`,
    );
    assert.deepEqual(lines.slice(0, 4), ['kept', 'kept', 'touch: /d/x: Read-only file system', '711 7:8']);
    assert.deepEqual(lines.slice(4), ['had', 'ls: /s/passwd: No such file or directory']);
    const other = await build('RUN --mount=type=cache,target=/c ls -A /c', '--build-arg', 'BUILDKIT_CACHE_MOUNT_NS=n');
    assert.deepEqual(other, [], 'another name space has other directories');
    assert.match((await buildx.ok(['buildx', 'du', '--verbose'])).stdout, /exec\.cachemount/);
  });

  test('a cache begins anew when the files that it is from are others, whatever their stage is called', async () => {
    const lines = async (stage: string, content: string, mount = '', ...args: string[]): Promise<string[]> => {
      const from = `--mount=type=cache,id=founded,from=${stage},target=/c,source=${mount || '/seed'}`;
      // The step is another one each time.
      const file = mount === '' ? '/c/f' : '/c';
      const run = `RUN ${from} cat ${file}; echo ${++uses} >> ${file}`;
      const made = `FROM ${image} AS ${stage}\nCOPY <<END /seed/f\n${content}\nEND\nFROM ${image}\n`;
      buildx.write('a/Dockerfile', made + run);
      const { stderr } = await buildx.ok(['build', '--network=none', ...args, '.'], { in: 'a' });
      return [...stderr.matchAll(/^#\d+ [\d.]+ (.*)$/gm)].map(([, line = '']) => line);
    };
    let uses = 0;
    assert.deepEqual(await lines('one', 'first'), ['first']);
    assert.deepEqual(await lines('two', 'second'), ['second']);
    assert.deepEqual(await lines('one', 'first'), ['first', '1']);
    assert.deepEqual(await lines('one', 'changed'), ['changed'], 'the stage has other files');
    assert.deepEqual(await lines('three', 'first'), ['first', '1', '3'], 'the same files under another name');
    assert.deepEqual(await lines('one', 'first', '/seed/f'), ['first'], 'a file');
    buildx.write('extra/f', 'of a context');
    const context = ['--build-context', 'extra=../extra'];
    const mount = '--mount=type=cache,id=founded,from=extra,target=/c';
    assert.deepEqual(await build(`RUN ${mount} cat /c/f; echo; echo more >> /c/f`, ...context), ['of a context']);
    buildx.write('extra/f', 'of a changed one');
    assert.deepEqual(await build(`RUN ${mount} cat /c/f`, ...context), ['of a changed one']);
  });

  test('a part of a cache is mounted, and no link in it leads outside', async () => {
    const whole = '--mount=type=cache,id=parts,target=/c';
    const part = `${whole},source=/part`;
    assert.match(await failure(`RUN ${part} true`), /open \/part: no such file or directory/);
    const lines = await build(
      `RUN ${whole} mkdir -p /c/part && echo there > /c/part/f && ln -s /../../../../../../etc /c/out\n` +
        `RUN ${part} cat /c/f && echo more >> /c/f\nRUN ${whole} cat /c/part/f`,
    );
    assert.deepEqual(lines, ['there', 'there', 'more']);
    assert.match(await failure(`RUN ${whole},source=/out ls /c`), /open \/out: no such file or directory/);
  });

  test('a locked cache is for one step at a time', async () => {
    const port = await freePort();
    const mount = '--network=host --mount=type=cache,id=locked,sharing=locked,target=/c';
    const grant = ['--allow', 'network.host'];
    const first = start(`RUN ${mount} rm -f /c/done; echo inside; nc -l -p ${port} -e true; echo > /c/done\n`, grant);
    await first.said(/ inside$/m);
    const second = start(`RUN echo ready\nRUN ${mount} test -e /c/done && echo after\n`, grant);
    await second.said(/ ready$/m);
    await waitFor('the first step to listen', () => knock(port));
    const [one, two] = await Promise.all([first.ended, second.ended]);
    assert.deepEqual([one.status, two.status], [0, 0], two.stderr);
    assert.deepEqual(outputOf(two), ['ready', 'after']);
  });

  test('secrets are files or variables, and nowhere else', async () => {
    const [inFile, inVariable] = ['marker-of-a-file', 'marker-of-a-variable'];
    buildx.write('in-file', inFile);
    buildx.write('in-variable', inVariable);
    const secrets = ['--secret', 'id=f,src=../in-file', '--secret', 'id=v,src=../in-variable'];
    const tell = (path: string): string => `stat -c "%a %u:%g" ${path}; wc -c < ${path}`;
    const lines = await build(
      `RUN --mount=type=secret,id=f ${tell('/run/secrets/f')}; ls /run/secrets\n` +
        `RUN --mount=type=secret,id=f,target=/s,mode=0444,uid=7,gid=8 --mount=type=secret,id=v,env=V ${tell('/s')}; ` +
        'echo ${#V}; ls -A /run\nRUN --mount=type=secret,id=absent,env=W echo "[$W]"; ls -A /run\n',
      ...secrets,
      '-t',
      'secrets',
    );
    const length = String(inFile.length);
    assert.deepEqual(lines, ['400 0:0', length, 'f', '444 7:8', length, String(inVariable.length), '[]']);
    assert.deepEqual(await topLayerOf(engine, 'secrets'), ['etc/']);
    const failed = 'RUN --mount=type=secret,id=f --mount=type=secret,id=v,env=V test -n "$V" && exit 5';
    assert.match(await failure(failed, ...secrets), /exit code: 5$/m);
    assert.match(
      await failure('RUN --mount=type=secret,id=absent,required true'),
      /failed to solve: secret absent: not found$/m,
    );
    assert.equal(filesWith(inFile), '');
    assert.equal(filesWith(inVariable), '');
  });

  test('ssh reaches the agent of the client', async () => {
    const { agent, socket } = await startAgent();
    try {
      const mine = execFileSync('ssh-add', ['-L'], {
        env: { ...process.env, SSH_AUTH_SOCK: socket },
        encoding: 'utf8',
      });
      putProgram('ssh-add');
      const lines = await build(
        'RUN --mount=target=/t,source=tools --mount=type=ssh ' +
          '/t/loader --library-path /t /t/ssh-add -L; stat -c "%a" $SSH_AUTH_SOCK; echo $SSH_AUTH_SOCK\n' +
          'RUN --mount=type=ssh,id=other,target=/s test ! -e /s && echo $SSH_AUTH_SOCK\n',
        '--ssh',
        `default=${socket}`,
      );
      assert.deepEqual(lines, [mine.trim(), '600', '/run/buildkit/ssh_agent.0', '/s']);
    } finally {
      agent.kill();
    }
    assert.match(await failure('RUN --mount=type=ssh,required true'), /failed to solve: /);
  });
});

function knock(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

/** An agent of its own, with a new key. */
async function startAgent(): Promise<{ readonly agent: ChildProcess; readonly socket: string }> {
  const socket = join(directory, 'agent.sock');
  const key = join(directory, 'key');
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'of the test', '-f', key]);
  const agent = spawn('ssh-agent', ['-D', '-a', socket], { stdio: 'ignore' });
  const env = { ...process.env, SSH_AUTH_SOCK: socket };
  await waitFor('the agent', () => spawnSync('ssh-add', [key], { env }).status === 0);
  return { agent, socket };
}

/** Copies a program of this machine into the context, with all that it is linked to. */
function putProgram(name: string): void {
  const tools = join(buildx.directory, 'ctx/tools');
  mkdirSync(tools);
  const program = execFileSync('which', [name], { encoding: 'utf8' }).trim();
  copyFileSync(program, join(tools, name));
  for (const [path] of execFileSync('ldd', [program], { encoding: 'utf8' }).matchAll(/\/\S+/g)) {
    copyFileSync(path, join(tools, path.includes('/ld-linux') ? 'loader' : basename(path)));
  }
}
