/** dockerode, unmodified: the client library under most Node programs that use the API. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import Docker from 'dockerode';
import { extract, pack } from 'tar-stream';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let docker: Docker;
let image: string;

before(async () => {
  const { engine, image: known } = await startEngineWithRegistry(cleanup);
  image = known;
  await engineOk(engine, ['rmi', image]);
  docker = new Docker({ socketPath: engine.socketPath });
  const progress = await docker.pull(image);
  const messages = await followed(progress);
  assert.match(messages.at(-1)?.status ?? '', /^Status: Downloaded newer image for /);
});
after(() => cleanup.run());

interface ProgressMessage {
  readonly status?: string;
  readonly stream?: string;
  readonly aux?: { readonly ID?: string };
  readonly error?: string;
  readonly errorDetail?: { readonly code?: number };
}

/** Resolves with all messages at the end. */
function followed(progress: NodeJS.ReadableStream): Promise<ProgressMessage[]> {
  return new Promise((resolve, reject) =>
    docker.modem.followProgress(progress, (error: Error | null, messages: ProgressMessage[]) =>
      error ? reject(error) : resolve(messages),
    ),
  );
}

async function removed(container: Docker.Container): Promise<void> {
  await container.remove({ force: true, v: true });
}

test('run: output, exit code, removal', async () => {
  const output = new PassThrough();
  const collected = text(output);
  const [result, container] = (await docker.run(image, ['sh', '-c', 'echo out; exit 4'], output, { Tty: true })) as [
    { StatusCode: number },
    Docker.Container,
  ];
  assert.equal(result.StatusCode, 4);
  output.end();
  assert.equal(await collected, 'out\r\n');
  await removed(container);
  await assert.rejects(container.inspect(), { statusCode: 404 });
});

test('attach: stdin to the end, stdout and stderr apart', async () => {
  const container = await docker.createContainer({
    Image: image,
    Cmd: ['sh', '-c', 'cat; echo done >&2'],
    OpenStdin: true,
    StdinOnce: true,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
  });
  const stream = await container.attach({ stream: true, hijack: true, stdin: true, stdout: true, stderr: true });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  container.modem.demuxStream(stream, stdout, stderr);
  stream.once('end', () => {
    stdout.end();
    stderr.end();
  });
  const both = Promise.all([text(stdout), text(stderr)]);
  await container.start();
  stream.write('typed\n');
  stream.end();
  assert.deepEqual(await both, ['typed\n', 'done\n']);
  assert.equal(((await container.wait()) as { StatusCode: number }).StatusCode, 0);
  await removed(container);
});

test('exec: input, output, environment, exit code', async () => {
  const container = await docker.createContainer({ Image: image, Cmd: ['sleep', '100'] });
  await container.start();
  const exec = await container.exec({
    Cmd: ['sh', '-c', 'read line; echo "$line $WHO"; exit 5'],
    Env: ['WHO=there'],
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
  });
  const stream = await exec.start({ hijack: true, stdin: true });
  const stdout = new PassThrough();
  docker.modem.demuxStream(stream, stdout, stdout);
  stream.once('end', () => stdout.end());
  const collected = text(stdout);
  stream.write('hello\n');
  assert.equal(await collected, 'hello there\n');
  await waitFor('the exit code', async () => (await exec.inspect()).ExitCode === 5);
  await removed(container);
});

test('archives in and out', async () => {
  const container = await docker.createContainer({ Image: image, Cmd: ['true'] });
  const archive = pack();
  archive.entry({ name: 'given.txt', mode: 0o600 }, 'content');
  archive.finalize();
  await container.putArchive(await buffer(archive), { path: '/tmp' });
  const info = (await container.infoArchive({ path: '/tmp/given.txt' })) as unknown as {
    headers: Record<string, string>;
  };
  assert.equal(
    (
      JSON.parse(Buffer.from(info.headers['x-docker-container-path-stat'] ?? '', 'base64').toString()) as {
        size: number;
      }
    ).size,
    7,
  );
  const entries: [string, string][] = [];
  const reader = extract();
  reader.on('entry', (header, stream, next) => {
    void text(stream).then((content) => {
      entries.push([header.name, content]);
      next();
    });
  });
  (await container.getArchive({ path: '/tmp/given.txt' })).pipe(reader);
  await once(reader, 'finish');
  assert.deepEqual(entries, [['given.txt', 'content']]);
  await removed(container);
});

test('logs are followed, events are seen, stats have numbers', async () => {
  const events = await docker.getEvents({ filters: { type: ['container'], event: ['start', 'die'] } });
  const seen: string[] = [];
  events.on('data', (chunk: Buffer) => {
    for (const line of chunk.toString().split('\n').filter(Boolean))
      seen.push((JSON.parse(line) as { Action: string }).Action);
  });
  const container = await docker.createContainer({
    Image: image,
    Cmd: ['sh', '-c', 'for i in 1 2 3; do echo $i; sleep 0.3; done; sleep 1'],
    Tty: true,
  });
  await container.start();
  const stats = await container.stats({ stream: false });
  assert.ok(stats.cpu_stats.cpu_usage.total_usage > 0);
  assert.ok(stats.memory_stats.usage > 0);
  assert.equal(await text(await container.logs({ follow: true, stdout: true, stderr: true })), '1\r\n2\r\n3\r\n');
  await waitFor('both events', () => seen.length === 2);
  assert.deepEqual(seen, ['start', 'die']);
  (events as unknown as { destroy(): void }).destroy();
  await removed(container);
});

test('networks, volumes, lists with filters, prune', async () => {
  const network = await docker.createNetwork({ Name: 'dockerode-net', Labels: { of: 'dockerode' } });
  await docker.createVolume({ Name: 'dockerode-vol', Labels: { of: 'dockerode' } });
  const container = await docker.createContainer({
    Image: image,
    name: 'dockerode-c',
    Cmd: ['sleep', '100'],
    HostConfig: { Binds: ['dockerode-vol:/data'], NetworkMode: 'dockerode-net' },
    Labels: { of: 'dockerode' },
  });
  await container.start();
  assert.deepEqual(
    (await docker.listContainers({ filters: { label: ['of=dockerode'], network: ['dockerode-net'] } })).map(
      ({ Names }) => Names,
    ),
    [['/dockerode-c']],
  );
  assert.deepEqual(Object.keys(((await network.inspect()) as { Containers: object }).Containers), [container.id]);
  await assert.rejects(docker.getVolume('dockerode-vol').remove(), { statusCode: 409 });
  await assert.rejects(network.remove(), { statusCode: 403 });
  await container.rename({ name: 'dockerode-renamed' });
  await container.stop({ t: 0 });
  const pruned = await docker.pruneContainers({ filters: { label: ['of=dockerode'] } });
  assert.deepEqual(pruned.ContainersDeleted, [container.id]);
  await network.remove();
  await docker.getVolume('dockerode-vol').remove();
  assert.deepEqual((await docker.listVolumes({ filters: { label: ['of=dockerode'] } })).Volumes, []);
});

test('images: tag, inspect, history, save and load, removal', async () => {
  await docker.getImage(image).tag({ repo: 'dockerode/copy', tag: '1' });
  const { Id, RepoTags } = await docker.getImage('dockerode/copy:1').inspect();
  assert.ok(RepoTags.includes('dockerode/copy:1'));
  assert.equal(((await docker.getImage(Id).history()) as unknown[]).length, 2);
  const saved = await buffer(await docker.getImage('dockerode/copy:1').get());
  await docker.getImage('dockerode/copy:1').remove();
  await assert.rejects(docker.getImage('dockerode/copy:1').inspect(), { statusCode: 404 });
  const input = new PassThrough();
  input.end(saved);
  const output = await text(await docker.loadImage(input));
  assert.match(output, /Loaded image: dockerode\/copy:1/);
  assert.equal((await docker.getImage('dockerode/copy:1').inspect()).Id, Id);
  await docker.getImage('dockerode/copy:1').remove();
});

test('builds an image of a tar or of files, and hears of each step, its end and its failure', async () => {
  const dockerfile = `FROM ${image}\nARG WHO\nCOPY f /f\nRUN echo "$WHO" >> /f\nCMD ["cat", "/f"]\n`;
  const context = pack();
  context.entry({ name: 'Dockerfile' }, dockerfile);
  context.entry({ name: 'f' }, 'a file, and ');
  context.finalize();
  const options = { t: 'dockerode/built', buildargs: { WHO: 'an argument' }, labels: { of: 'dockerode' } };
  const messages = await followed(await docker.buildImage(context as unknown as NodeJS.ReadableStream, options));
  const [aux, second] = messages.flatMap((message) => message.aux?.ID ?? []);
  const built = await docker.getImage('dockerode/built').inspect();
  assert.deepEqual([built.Id, second, built.Config.Labels?.['of']], [aux, undefined, 'dockerode']);
  assert.equal(messages.at(-1)?.stream, 'Successfully tagged dockerode/built:latest\n');
  const output = new PassThrough();
  const [said] = await Promise.all([text(output), docker.run('dockerode/built', [], output)]);
  assert.match(said, /a file, and an argument/);

  const directory = await mkdtemp(join(tmpdir(), 'dockerode-'));
  try {
    await writeFile(join(directory, 'other.Dockerfile'), `FROM ${image}\nCOPY . /all\nRUN ls /all | wc -l; exit 3\n`);
    await writeFile(join(directory, 'f'), '');
    await writeFile(join(directory, 'not-named'), '');
    const files = { context: directory, src: ['other.Dockerfile', 'f'] };
    const progress = await docker.buildImage(files, { dockerfile: 'other.Dockerfile', forcerm: true });
    const failure = (await followed(progress)).at(-1);
    assert.match(failure?.error ?? '', /The command '.*exit 3' returned a non-zero code: 3/);
    assert.equal(failure?.errorDetail?.code, 3);
  } finally {
    await rm(directory, { recursive: true });
  }
  await docker.pruneContainers();
  await docker.getImage('dockerode/built').remove();
});

test('errors have the status and the message of the API', async () => {
  await assert.rejects(docker.getContainer('nope').start(), {
    statusCode: 404,
    json: { message: 'No such container: nope' },
  });
  await assert.rejects(docker.createContainer({ Image: 'nope/nope' }), {
    statusCode: 404,
    json: { message: 'No such image: nope/nope:latest' },
  });
});
