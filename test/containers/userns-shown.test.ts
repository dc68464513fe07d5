/** `userns-remap` of one user over images and volumes that are kept once, with the owners that images have. */
import assert from 'node:assert/strict';
import { appendFileSync, existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { attempt } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries, tarOf } from '../support/image-builder.js';
import { hostOwner, owner, RemappedEngine } from '../support/remapped-engine.js';
import { hostGid, hostUid } from '../support/remapper.js';
import { assertStepOwners } from '../support/step-owners.js';
import { IMAGE, idsOf, owners } from '../support/users-image.js';
import { waitFor } from '../support/wait.js';

const remapped = new RemappedEngine();
const { ok, run, inspect, pidOf } = remapped;
// The image is there, and a container, before users are remapped.
remapped.isRemapping = false;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const data = (...path: string[]): string => join(remapped.engine.dir, 'data', ...path);

/** '' for a descriptor that has been closed meanwhile. */
function readLink(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

async function restart(isRemapping: boolean): Promise<void> {
  await remapped.engine.stop();
  remapped.isRemapping = isRemapping;
  await remapped.engine.start();
}

describe('users that are shown files as theirs', () => {
  test('images that are there are used as they are: nothing is copied', async () => {
    await ok('run', '-d', '--name', 'before', '-v', 'old:/content', IMAGE, 'sleep', '6000');
    const layers = readdirSync(data('overlay2/layers')).sort();
    await restart(true);
    assert.match(remapped.engine.log, /these were created without it and keep the users of the host/);
    assert.equal(idsOf(await pidOf('before')), '0:0');
    await ok('run', '-d', '--name', 'plain', IMAGE, 'sleep', '6000');
    assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
    const stat = ['stat', '-c', '%u:%g', '/', '/bin/busybox', '/content/own', '/etc/hosts', '/dev/shm'];
    assert.equal(await ok('exec', 'plain', ...stat), '0:0\n0:0\n1500:50\n0:0\n0:0');
    assert.deepEqual(readdirSync(data('overlay2/layers')).sort(), layers);
    assert.equal(existsSync(data(`${hostUid(0)}.${hostGid(0)}`)), false);
    const { LowerDir } = (await inspect('plain')).GraphDriver.Data;
    assert.equal(owner(join(LowerDir.split(':')[1] ?? '', 'content/own')), '1500:50');
    const info = await callJson<{ SecurityOptions: string[]; DockerRootDir: string }>(
      remapped.engine.socketPath,
      'GET',
      '/info',
    );
    assert.equal(info.DockerRootDir, data());
    assert.ok(info.SecurityOptions.includes('name=userns'), String(info.SecurityOptions));
  });

  test('volumes, archives, exports, commits and changes have the ids that the container sees', async () => {
    const stat = 'stat -c %u:%g /content /content/own; touch /content/new; chown 3:4 /content/new';
    assert.equal(await run('-v', 'old:/content', IMAGE, 'sh', '-c', stat), '1500:50\n1500:50');
    // The root and the volume were mounted with one namespace, which is kept for the next containers.
    const descriptors = `/proc/${remapped.engine.pid}/fd`;
    const links = readdirSync(descriptors).map((fd) => readLink(join(descriptors, fd)));
    assert.equal(links.filter((link) => link.startsWith('user:[')).length, 1);
    assert.equal(owner(data('volumes/old/_data/new')), '3:4');
    assert.equal(await ok('exec', 'before', 'stat', '-c', '%u:%g', '/content/new'), '3:4');
    const script = 'mkdir /made; echo a >/made/a; chown 1500:7 /made/a; rm /types/empty';
    await ok('run', '--name', 'maker', IMAGE, 'sh', '-c', script);
    const body = tarOf([{ path: 'in', content: 'x', uid: 1500, gid: 7, mode: 0o4711 }]);
    const headers = { 'Content-Type': 'application/x-tar' };
    const { socketPath } = remapped.engine;
    for (const name of ['maker', 'plain']) {
      const reply = await call(socketPath, 'PUT', `/containers/${name}/archive?path=/`, { body, headers });
      assert.equal(reply.status, 200, reply.text);
      const out = await call(socketPath, 'GET', `/containers/${name}/archive?path=/in`);
      assert.deepEqual(owners(out.body), ['in 1500:7'], name);
    }
    const { UpperDir } = (await inspect('maker')).GraphDriver.Data;
    assert.equal(owner(join(UpperDir, 'in')), hostOwner(1500, 7));
    assert.deepEqual((await ok('diff', 'maker')).split('\n').sort(), [
      'A /in',
      'A /made',
      'A /made/a',
      'C /types',
      'D /types/empty',
    ]);
    const exported = owners((await call(socketPath, 'GET', '/containers/maker/export')).body);
    for (const line of ['made/a 1500:7', 'in 1500:7', 'content/own 1500:50', 'bin/busybox 0:0'])
      assert.ok(exported.includes(line), line);
    await ok('commit', 'maker', 'test/committed:1');
    await ok('rm', 'maker');
    for (const args of [[], ['--userns', 'host']])
      assert.equal(await run(...args, 'test/committed:1', 'stat', '-c', '%u:%g', '/made/a', '/in'), '1500:7\n1500:7');
  });

  test('namespaces of others: those with the same users, and no others', async () => {
    for (const kind of ['network', 'pid'])
      assert.equal(await run(`--${kind}`, 'container:plain', IMAGE, 'stat', '-c', '%u:%g', '/content/own'), '1500:50');
    const refused = await attempt(remapped.engine, ['run', '--rm', '--network', 'container:before', IMAGE, 'true']);
    assert.match(refused.stderr, /cannot share namespaces of a container in the user namespace of the host/);
    for (const file of ['/etc/subuid', '/etc/subgid']) appendFileSync(file, 'engined:1500000000:65536\n');
    const { Id } = await callJson<{ Id: string }>(remapped.engine.socketPath, 'POST', '/containers/create', {
      json: { Image: IMAGE, Cmd: ['sleep', '6000'], HostConfig: { UsernsMode: 'auto' } },
    });
    await ok('start', Id);
    const other = await attempt(remapped.engine, ['run', '--rm', '--pid', `container:${Id}`, IMAGE, 'true']);
    assert.match(other.stderr, /cannot share namespaces of containers in different user namespaces/);
    await ok('rm', '-f', Id);
    const { status, text } = await call(remapped.engine.socketPath, 'POST', '/containers/create', {
      json: { Image: IMAGE, HostConfig: { Privileged: true } },
    });
    assert.equal(status, 400, text);
    assert.equal(
      await run('--userns', 'host', '--privileged', IMAGE, 'stat', '-c', '%u:%g', '/content/own'),
      '1500:50',
    );
  });

  test('ids beyond the ranges are kept, and those of nobody in a container', async () => {
    const beyond = buildImage({
      layers: [buildLayer(busyboxEntries()), buildLayer([{ path: 'beyond', content: 'x', uid: 70_000 }])],
    });
    await load(remapped.engine, archiveOf(oldArchive(beyond, ['test/beyond:1'])));
    assert.equal(await run('test/beyond:1', 'stat', '-c', '%u:%g', '/beyond'), '65534:0');
    await ok('rmi', 'test/beyond:1');
  });

  test('steps of builds are such containers, by both doors', { skip }, async () => {
    await assertStepOwners(new Buildx(join(remapped.temp, 'work'), remapped.engine.host));
    assert.equal(await run('test/steps:1', 'stat', '-c', '%u:%g', '/copied', '/given'), '1500:7\n3:4');
    const dockerfile = `FROM ${IMAGE}\nRUN grep -q " ${hostUid(0)} " /proc/self/uid_map && touch /f && chown 5:6 /f\n`;
    const reply = await call(remapped.engine.socketPath, 'POST', '/build?t=test/classic:1', {
      body: tarOf([{ path: 'Dockerfile', content: dockerfile }]),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    assert.match(reply.text, /Successfully tagged test\/classic:1/);
    assert.equal(await run('--userns', 'host', 'test/classic:1', 'stat', '-c', '%u:%g', '/f'), '5:6');
  });

  test(
    'killed in a build and in creates, the next daemon has its containers, and nothing is left',
    { skip },
    async () => {
      const buildx = new Buildx(join(remapped.temp, 'killed'), remapped.engine.host);
      buildx.write('ctx/Dockerfile', `FROM ${IMAGE}\nRUN touch /x; echo "is $((40 + 2))"; sleep 6000\n`);
      const build = buildx.start(['build', '.'], { in: 'ctx' });
      await build.said(/is 42/);
      const made = Promise.allSettled([1, 2, 3].map(() => ok('run', '-d', '--label', 'brief', IMAGE, 'sleep', '6000')));
      await remapped.engine.stop('SIGKILL');
      await Promise.all([made, build.ended]);
      await remapped.engine.start();
      assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
      assert.equal(await ok('exec', 'plain', 'stat', '-c', '%u:%g', '/content/own'), '1500:50');
      const brief = (await ok('ps', '-aq', '--filter', 'label=brief')).split('\n').filter(Boolean);
      if (brief.length > 0) await ok('rm', '-f', ...brief);
      const all = (await ok('ps', '-aq', '--no-trunc')).split('\n').sort();
      assert.deepEqual(readdirSync(data('overlay2/writable')).sort(), all);
      const roots = join(remapped.engine.dir, 'exec/roots');
      await waitFor('only the running one', () => readdirSync(roots).length === 1);
      assert.doesNotMatch(readFileSync('/proc/self/mountinfo', 'utf8'), new RegExp(`${roots}/`));
    },
  );

  test('without the option containers keep the users that they were created with', async () => {
    await restart(false);
    await ok('restart', '-t', '0', 'plain', 'before');
    assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
    assert.equal(idsOf(await pidOf('before')), '0:0');
    assert.equal(await run(IMAGE, 'grep', '-c', ' 4294967295$', '/proc/self/uid_map'), '1');
  });
});
