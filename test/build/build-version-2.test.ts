/** `POST /build` with `version=2`: BuildKit by the classic operation. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fromBinary } from '@bufbuild/protobuf';
import { StatusResponseSchema } from '../../src/http/buildkit/proto/gen/control_pb.js';
import { Cleanup } from '../support/cleanup.js';
import { type EngineWithImage, startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';
import { SourceServer } from '../support/source-server.js';
import { waitFor } from '../support/wait.js';

interface Line {
  readonly id?: string;
  readonly aux?: unknown;
  readonly error?: string;
  readonly errorDetail?: { readonly message: string };
  readonly stream?: string;
}
interface Answer {
  readonly status: number | undefined;
  readonly text: string;
  readonly lines: readonly Line[];
  /** Names of the steps, and what they have printed. */
  readonly steps: readonly string[];
  readonly output: string;
  readonly image: string | undefined;
}

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'version-2-'));
let under: EngineWithImage;
let server: SourceServer;

before(async () => {
  under = await startEngineWithImage(cleanup);
  server = await SourceServer.start();
  cleanup.add(() => server.stop());
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

function tarOf(files: Readonly<Record<string, string>>): Buffer {
  const at = mkdtempSync(join(directory, 'tar-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(at, name), text);
  return execFileSync('tar', ['-C', at, '-cf', '-', '.']);
}

/** @param onText hears of the reply as it comes. */
function post(query: string, body: Buffer, onText: (text: string) => void = () => undefined): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = request({
      socketPath: under.engine.socketPath,
      method: 'POST',
      path: `/v1.51/build?version=2&${query}`,
      headers: { 'Content-Type': 'application/x-tar' },
    });
    asked.on('error', reject);
    asked.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece: string) => onText((text += piece)));
      response.on('error', reject);
      response.on('end', () => resolve(read(response.statusCode, text)));
    });
    asked.end(body);
  });
}

function read(status: number | undefined, text: string): Answer {
  const lines = text
    .split('\r\n')
    .filter((line) => line !== '' && status === 200)
    .map((line) => JSON.parse(line) as Line);
  const traces = lines
    .filter(({ id }) => id === 'moby.buildkit.trace')
    .map(({ aux }) => fromBinary(StatusResponseSchema, Buffer.from(aux as string, 'base64')));
  const image = lines.find(({ id }) => id === 'moby.image.id')?.aux as { readonly ID: string } | undefined;
  return {
    status,
    text,
    lines,
    steps: [...new Set(traces.flatMap(({ vertexes }) => vertexes.map(({ name }) => name)))],
    output: traces.flatMap(({ logs }) => logs.map(({ msg }) => Buffer.from(msg).toString())).join(''),
    image: image?.ID,
  };
}

const parameters = (values: Readonly<Record<string, string>>): string => new URLSearchParams(values).toString();

describe('POST /build with version=2', () => {
  test('builds what the body has, and tells of it in messages of BuildKit', async () => {
    const files = {
      Dockerfile: `FROM ${under.image}\nARG A\nRUN echo "shown $A" && cat /etc/hosts\nCOPY <<EOF /f\ntext\nEOF\n`,
    };
    const query = parameters({
      t: 'two:1',
      buildargs: JSON.stringify({ A: 'arg', UNUSED: null }),
      labels: JSON.stringify({ l: 'a,b"c' }),
      extrahosts: 'there:10.1.2.3',
      ulimits: JSON.stringify([{ Name: 'nofile', Soft: 100, Hard: 200 }]),
      shmsize: '1048576',
    });
    const built = await post(query, tarOf(files));
    assert.equal(built.status, 200, built.text);
    assert.match(built.output, /shown arg/);
    assert.match(built.output, /10\.1\.2\.3\s+there/);
    assert.ok(
      built.steps.some((name) => name.startsWith('[2/3] RUN echo')),
      built.steps.join('\n'),
    );
    const image = await callJson<{ Id: string; Config: { Labels: Readonly<Record<string, string>> } }>(
      under.engine.socketPath,
      'GET',
      '/images/two:1/json',
    );
    assert.equal(built.image, image.Id);
    assert.equal(image.Config.Labels['l'], 'a,b"c');
    const mount = 'RUN --mount=type=cache,target=/c true';
    const mounted = await post('', tarOf({ Dockerfile: `FROM ${under.image}\n${mount}\n` }));
    // A mount that begins with nothing is one more stage, so that the only one of the file has a name, as by BuildKit.
    assert.ok(mounted.steps.includes(`[stage-0 2/2] ${mount}`), mounted.steps.join('\n'));
    const quiet = await post(`${query}&q=1`, tarOf(files));
    assert.deepEqual(quiet.lines, [{ stream: `${image.Id}\n` }]);
    const ordered = await post(`${query}&outputs=${encodeURIComponent('[{"Type":"moby"}]')}`, tarOf(files));
    assert.equal(ordered.image, image.Id);
  });

  test('names the parameter that it cannot read', async () => {
    const digest = `a@sha256:${'0'.repeat(64)}`;
    for (const [parameter, value] of [
      ['t', 'Bad'],
      ['t', digest],
      ['cachefrom', '{'],
      ['cachefrom', '[1]'],
    ] as const) {
      const { status, text } = await post(parameters({ [parameter]: value }), Buffer.alloc(0));
      assert.deepEqual([status, new RegExp(`(invalid|reading) ${parameter}\\b`).test(text)], [400, true], text);
    }
  });

  test('takes a context from another request, and from an address', async () => {
    const upload = tarOf({ Dockerfile: `FROM ${under.image}\nCOPY mine /mine\n`, mine: 'of the upload' });
    const [built, uploaded] = await Promise.all([
      post(parameters({ remote: 'upload-request', buildid: 'with-upload', t: 'uploaded:1' }), Buffer.alloc(0)),
      post(parameters({ buildid: 'upload-request:with-upload' }), upload),
    ]);
    assert.equal(uploaded.status, 200, uploaded.text);
    assert.match(built.image ?? built.text, /^sha256:/);
    const commit = server.commit('repo', { 'other.Dockerfile': `FROM ${under.image}\nCOPY . /all\n` });
    assert.match(commit, /^[0-9a-f]{40}$/);
    const remote = parameters({ remote: `${server.url}/git/repo.git`, dockerfile: 'other.Dockerfile' });
    const fetched = await post(remote, Buffer.alloc(0));
    assert.match(fetched.image ?? fetched.text, /^sha256:/);
  });

  test('takes a body that is no archive for the Dockerfile, which is the only file of the context', async () => {
    const built = await post(
      'dockerfile=other',
      Buffer.from(`FROM ${under.image}\nCOPY . /all\nRUN cat /all/context\n`),
    );
    assert.match(built.output, /COPY \. \/all/);
    assert.match(built.image ?? built.text, /^sha256:/);
    for (const [body, words] of [
      [Buffer.alloc(2000, 'x'), /dockerfile parse error on line 1: unknown instruction: xxx/],
      [Buffer.alloc(0), /the Dockerfile cannot be empty/],
      [tarOf({ Dockerfile: 'FROM scratch\n' }).subarray(0, 700), /unexpected EOF/],
    ] as const)
      assert.match((await post('', body)).lines.at(-1)?.error ?? '', words);
  });

  test('tells of failures after the begin in the last line, and of others by the status', async () => {
    const failed = await post('', tarOf({ Dockerfile: `FROM ${under.image}\nRUN echo out && exit 7\n` }));
    assert.equal(failed.status, 200);
    assert.match(failed.output, /out/);
    assert.match(
      failed.lines.at(-1)?.errorDetail?.message ?? failed.text,
      /did not complete successfully: exit code: 7/,
    );
    assert.equal(failed.lines.at(-1)?.error, failed.lines.at(-1)?.errorDetail?.message);
    const refusals: readonly [query: Readonly<Record<string, string>>, status: number, text: RegExp][] = [
      [{ version: '3' }, 400, /invalid version/],
      [{ buildargs: '[' }, 400, /error reading build args/],
      [{ outputs: '{}' }, 400, /invalid outputs specified: not a list/],
      [{ outputs: '[1]' }, 400, /invalid outputs specified/],
      [{ outputs: '[{"Type":1}]' }, 400, /invalid outputs specified/],
      [{ outputs: '[{"Type":"local","Attrs":{"dest":1}}]' }, 400, /invalid outputs specified/],
      [{ outputs: '[null]' }, 500, /exporter \\"\\" could not be found/],
      [{ outputs: '[{"Type":"nope"}]' }, 500, /exporter \\"nope\\" could not be found/],
      [{ outputs: '[{"Type":"local"},{"Type":"tar"}]' }, 500, /multiple outputs not supported/],
      [{ platform: 'foo' }, 400, /unknown operating system or architecture/],
      // The classic builder reads them, too, and then makes an image whatever they say.
      [{ version: '1', outputs: 'x' }, 400, /invalid outputs specified/],
      [{ networkmode: 'mine' }, 400, /network mode .*mine.* not supported by buildkit/],
      [{ extrahosts: 'nothing' }, 400, /invalid host nothing/],
      [{ shmsize: 'x' }, 400, /invalid shmsize/],
      [{ t: 'UPPER' }, 400, /must be lowercase/],
      [{ securityopt: 'x' }, 400, /security options/],
    ];
    for (const [query, status, text] of refusals) {
      const answer = await post(parameters(query), tarOf({ Dockerfile: `FROM ${under.image}\n` }));
      const shown = query['version'] === undefined ? answer : await bad(query);
      assert.equal(shown.status, status, JSON.stringify(query));
      assert.match(shown.text, text);
    }
  });

  test('is given up by its ID, and when its client leaves', async () => {
    const files = { Dockerfile: `FROM ${under.image}\nRUN echo begun && sleep 1000\n` };
    let text = '';
    const running = post(parameters({ buildid: 'to-cancel' }), tarOf(files), (so) => (text = so));
    await waitFor('the step to run', () =>
      read(200, text.slice(0, text.lastIndexOf('\r\n') + 2)).output.includes('begun'),
    );
    await call(under.engine.socketPath, 'POST', '/build/cancel?id=to-cancel');
    const ended = await running;
    assert.match(ended.lines.at(-1)?.error ?? ended.text, /cancel/);
    await waitFor('the step to end', async () => (await containersOf()).length === 0);
  });
});

function containersOf(): Promise<object[]> {
  return callJson(under.engine.socketPath, 'GET', '/containers/json?all=1');
}

/** Sends a parameter that takes the place of the version. */
async function bad(query: Readonly<Record<string, string>>): Promise<{ status: number | undefined; text: string }> {
  const reply = await call(under.engine.socketPath, 'POST', `/build?${parameters(query)}`);
  return { status: reply.status, text: String(reply.body) };
}
