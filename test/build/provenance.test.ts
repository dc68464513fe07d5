/** Provenance that lies beside an image in its index, with the unmodified buildx. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { type Descriptor, type Index, type Manifest, type OciFiles, ociFiles } from '../support/oci-archive.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { SourceServer } from '../support/source-server.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'provenance-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
let engine: Engine;
let image: string;
let base: string;
let baseDigest: string;
let registry: TestRegistry;
let server: SourceServer;
let buildx: Buildx;

interface Statement {
  readonly _type: string;
  readonly predicateType: string;
  readonly subject: readonly { readonly name: string; readonly digest: { readonly sha256: string } }[];
  readonly predicate: Predicate;
}
interface Predicate {
  readonly builder: { readonly id: string };
  readonly materials: readonly { readonly uri: string; readonly digest: Readonly<Record<string, string>> }[];
  readonly invocation: {
    readonly configSource: { readonly entryPoint: string };
    readonly parameters: {
      readonly args?: Readonly<Record<string, string>>;
      readonly secrets?: object;
      readonly ssh?: object;
    };
  };
  readonly buildConfig?: { readonly llbDefinition: readonly { readonly id: string; readonly inputs?: string[] }[] };
  readonly metadata: {
    readonly reproducible: boolean;
    readonly completeness: { readonly parameters: boolean };
    readonly buildStartedOn: string;
    readonly buildFinishedOn: string;
  };
}

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  server = await SourceServer.start();
  cleanup.add(() => server.stop());
  base = `${registry.host}/team/base:1`;
  await engineOk(engine, ['tag', image, base]);
  await engineOk(engine, ['push', base]);
  const { RepoDigests } = await callJson<{ RepoDigests: string[] }>(engine.socketPath, 'GET', `/images/${base}/json`);
  baseDigest = (RepoDigests.find((one) => one.startsWith(registry.host)) ?? '').split('@sha256:')[1] ?? '';
  buildx = new Buildx(join(directory, 'work'), engine.host);
  server.file('/added', 'from afar');
  buildx.write(
    'a/Dockerfile',
    `FROM ${base}\nARG NAME\nADD ${server.url}/added /added\n` +
      'RUN --mount=type=secret,id=token,required=false echo "$NAME" >/name\nLABEL a=b\n',
  );
  buildx.write('token', 'very-secret-token');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Builds `a` as an archive. Returns its files, and the statements about each image. */
async function attested(name: string, ...args: string[]): Promise<{ files: OciFiles; statements: Statement[] }> {
  const output = ['-o', `type=oci,dest=../${name}.tar,name=app:1`];
  const given = [
    '--build-arg',
    'NAME=private-value',
    '--label',
    'l=private-label',
    '--secret',
    'id=token,src=../token',
  ];
  await buildx.ok(['build', ...output, ...given, ...args, '.'], { in: 'a' });
  const files = ociFiles(join(buildx.directory, `${name}.tar`));
  const [entry] = (files.json('index.json') as Index).manifests;
  const { manifests } = files.blob(entry as Descriptor) as Index;
  return { files, statements: manifests.flatMap((one) => statementsOf(files, one, manifests)) };
}

function statementsOf(files: OciFiles, one: Descriptor, all: readonly Descriptor[]): Statement[] {
  if (one.annotations?.['vnd.docker.reference.type'] !== 'attestation-manifest') return [];
  assert.deepEqual(one.platform, { architecture: 'unknown', os: 'unknown' });
  assert.ok(all.some(({ digest }) => digest === one.annotations?.['vnd.docker.reference.digest']));
  const { layers, config } = files.blob(one) as Manifest;
  const { rootfs } = files.blob(config) as { rootfs: { diff_ids: string[] } };
  assert.deepEqual(
    layers.map(({ digest }) => digest),
    rootfs.diff_ids,
  );
  return layers.map((layer) => {
    const statement = files.blob(layer) as Statement;
    assert.equal(layer.mediaType, 'application/vnd.in-toto+json');
    assert.equal(layer.annotations?.['in-toto.io/predicate-type'], statement.predicateType);
    assert.equal(`sha256:${statement.subject[0]?.digest.sha256}`, one.annotations?.['vnd.docker.reference.digest']);
    return statement;
  });
}

describe('docker build --provenance', { skip }, () => {
  test('min tells what an image is made of, and nothing private', async () => {
    const { files, statements } = await attested('min', '--provenance=mode=min');
    const [statement, ...others] = statements;
    assert.ok(statement);
    assert.deepEqual(others, []);
    assert.equal(statement._type, 'https://in-toto.io/Statement/v0.1');
    assert.equal(statement.predicateType, 'https://slsa.dev/provenance/v0.2');
    assert.equal(statement.subject[0]?.name, 'pkg:docker/app@1?platform=linux%2Famd64');
    const { materials, invocation, metadata, buildConfig } = statement.predicate;
    const added = createHash('sha256').update('from afar').digest('hex');
    assert.deepEqual(materials, [
      { uri: `pkg:docker/${base.replace(/:1$/, '')}@1?platform=linux%2Famd64`, digest: { sha256: baseDigest } },
      { uri: `${server.url}/added`, digest: { sha256: added } },
    ]);
    assert.equal(invocation.configSource.entryPoint, 'Dockerfile');
    assert.equal(invocation.parameters.args, undefined);
    assert.equal(invocation.parameters.secrets, undefined);
    assert.deepEqual(Object.keys(metadata), [
      'buildInvocationID',
      'buildStartedOn',
      'buildFinishedOn',
      'completeness',
      'reproducible',
      'https://mobyproject.org/buildkit@v1#metadata',
    ]);
    assert.equal(metadata.completeness.parameters, false);
    assert.ok(Date.parse(metadata.buildStartedOn) <= Date.parse(metadata.buildFinishedOn));
    assert.equal(buildConfig, undefined);
    for (const name of files.names) {
      const text = String(files.bytes(name.replace('blobs/sha256/', 'sha256:')) ?? '');
      if (text.includes('in-toto.io')) assert.doesNotMatch(text, /private-|very-secret/);
    }
  });

  test('max tells the arguments, the steps with their lines, and names of secrets, but no secret', async () => {
    const options = 'mode=max,builder-id=https://example.test/builder,reproducible=true';
    const { statements } = await attested('max', `--provenance=${options}`, '--no-cache');
    const [{ predicate } = assert.fail()] = statements;
    assert.equal(predicate.builder.id, 'https://example.test/builder');
    assert.equal(predicate.metadata.reproducible, true);
    assert.equal(predicate.metadata.completeness.parameters, true);
    const { args, secrets } = predicate.invocation.parameters;
    assert.equal(args?.['build-arg:NAME'], 'private-value');
    assert.deepEqual(secrets, [{ id: 'token', optional: true }]);
    const steps = predicate.buildConfig?.llbDefinition ?? [];
    assert.deepEqual(
      steps.map(({ id, inputs }) => [id, inputs]),
      [
        ['step0', undefined],
        ['step1', undefined],
        ['step2', ['step0:0', 'step1:0']],
        ['step3', ['step2:0']],
      ],
    );
    const text = JSON.stringify(predicate);
    assert.match(text, /"args":\["\/bin\/sh","-c","echo \\"\$NAME\\" >\/name"\]/);
    assert.match(text, /"step3":\{"locations":\[\{"ranges":\[\{"start":\{"line":4\},"end":\{"line":4\}\}\]\}\]\}/);
    assert.doesNotMatch(text, /very-secret/);
  });

  test('is in version 1 of SLSA when it is asked for', async () => {
    const { statements } = await attested('one', '--provenance=mode=min,version=v1');
    const [{ predicateType, predicate } = assert.fail()] = statements;
    assert.equal(predicateType, 'https://slsa.dev/provenance/v1');
    const { buildDefinition, runDetails } = predicate as unknown as {
      readonly buildDefinition: { readonly resolvedDependencies: readonly object[] };
      readonly runDetails: { readonly metadata: { readonly invocationId: string } };
    };
    assert.equal(buildDefinition.resolvedDependencies.length, 2);
    assert.match(runDetails.metadata.invocationId, /^[0-9a-f-]{36}$/);
    assert.deepEqual(Object.keys(runDetails.metadata), [
      'invocationId',
      'startedOn',
      'finishedOn',
      'buildkit_metadata',
      'buildkit_completeness',
    ]);
  });

  test('is pushed with an image, one statement for each platform, and clients read it', async () => {
    buildx.write('scratch/Dockerfile', 'FROM scratch\nCOPY Dockerfile /\n');
    const name = `${registry.host}/team/attested:1`;
    const args = ['--platform', 'linux/amd64,linux/arm64', '--provenance=mode=max', '--push', '-t', name];
    await buildx.ok(['build', ...args, '.'], { in: 'scratch' });
    const shown = await buildx.ok(['buildx', 'imagetools', 'inspect', '--format', '{{json .Provenance}}', name]);
    const found = JSON.parse(shown.stdout) as Readonly<Record<string, { readonly SLSA: Predicate }>>;
    assert.deepEqual(Object.keys(found).sort(), ['linux/amd64', 'linux/arm64']);
    assert.equal(found['linux/arm64']?.SLSA.buildConfig?.llbDefinition.length, 2);
    // The image itself is one that everybody pulls.
    await engineOk(engine, ['pull', '-q', '--platform', 'linux/arm64', name]);
    const single = `${registry.host}/team/attested:2`;
    await buildx.ok(['build', '--provenance=true', '--push', '-t', single, '.'], { in: 'scratch' });
    await engineOk(engine, ['pull', '-q', single]);
  });

  test('names the repository of a context, without its login', async () => {
    const commit = server.commit('repo', { Dockerfile: 'FROM scratch\nCOPY Dockerfile /\n' });
    const url = `${server.url.replace('http://', 'http://me:hidden@')}/git/repo.git`;
    const output = ['--provenance=mode=max', '-o', 'type=oci,dest=remote.tar'];
    await buildx.ok(['build', ...output, url]);
    const files = ociFiles(join(buildx.directory, 'remote.tar'));
    const [entry] = (files.json('index.json') as Index).manifests;
    const { manifests } = files.blob(entry as Descriptor) as Index;
    const [statement] = manifests.flatMap((one) => statementsOf(files, one, manifests));
    assert.deepEqual(statement?.predicate.materials, [
      { uri: `${server.url.replace('http://', 'http://xxxxx@')}/git/repo.git`, digest: { sha1: commit } },
    ]);
    assert.doesNotMatch(JSON.stringify(statement), /hidden/);
    assert.equal(statement?.subject[0]?.name, '_');
  });

  test('of steps that have too much to say is refused with mode=max alone', async () => {
    // Each RUN tells all variables: together they are longer than the limit, and the Dockerfile is not.
    const variables = Array.from(
      { length: 20 },
      (_, at) => `ENV LONG${at}=${at === 0 ? 'x'.repeat(60_000) : '$LONG0'}`,
    );
    const lines = [...variables, ...Array.from({ length: 4 }, (_, at) => `RUN : ${at}`)];
    buildx.write('long/Dockerfile', [`FROM ${base}`, ...lines].join('\n'));
    const output = ['--network=none', '-o', 'type=oci,dest=../long.tar'];
    const refused = await buildx.run(['build', '--provenance=mode=max', ...output, '.'], { in: 'long' });
    assert.notEqual(refused.status, 0);
    assert.match(refused.stderr, /too long for provenance with mode=max: use mode=min/);
    await buildx.ok(['build', '--provenance=mode=min', ...output, '.'], { in: 'long' });
  });

  test('lies beside files that a client gets, and tells the digest of each', async () => {
    buildx.write('files/Dockerfile', 'FROM scratch\nCOPY one /\nCOPY two /d/\nARG TARGETARCH\nCOPY one /$TARGETARCH\n');
    buildx.write('files/one', 'first <&>\n');
    buildx.write('files/two', 'second\n');
    const sha256 = (text: string): { sha256: string } => ({ sha256: createHash('sha256').update(text).digest('hex') });
    const subjectsFor = (arch: string): object[] => [
      { name: arch, digest: sha256('first <&>\n') },
      { name: 'd/two', digest: sha256('second\n') },
      { name: 'one', digest: sha256('first <&>\n') },
    ];
    const at = (...path: string[]): string => join(buildx.directory, ...path);
    const check = (path: string, arch: string, subjects = subjectsFor(arch)): void => {
      const text = readFileSync(path, 'utf8');
      const statement = JSON.parse(text) as Statement;
      assert.deepEqual(statement.subject, subjects);
      assert.equal(statement.predicateType, 'https://slsa.dev/provenance/v0.2');
      assert.equal(JSON.stringify(statement, undefined, 2), text, 'in the lines of an encoder');
      assert.equal(statSync(path).mode & 0o777, 0o600);
    };
    await buildx.ok(['build', '--provenance=mode=max', '-o', '../one', '.'], { in: 'files' });
    assert.deepEqual(readdirSync(at('one')).sort(), ['amd64', 'd', 'one', 'provenance.json']);
    check(at('one/provenance.json'), 'amd64');
    const both = ['--platform', 'linux/amd64,linux/arm64', '--provenance=mode=min'];
    await buildx.ok(['build', ...both, '-o', 'type=local,dest=../both,attestation-prefix=a-', '.'], { in: 'files' });
    const together = 'type=local,dest=../mixed,platform-split=false';
    buildx.write('files/apart', 'FROM scratch\nARG TARGETARCH\nCOPY one /$TARGETARCH\n');
    await buildx.ok(['build', ...both, '-f', 'apart', '-o', together, '.'], { in: 'files' });
    await buildx.ok(['build', ...both, '-o', 'type=tar,dest=../both.tar', '.'], { in: 'files' });
    await buildx.ok(['build', '--provenance=mode=min', '-o', 'type=tar,dest=../one.tar', '.'], { in: 'files' });
    for (const name of ['both', 'one']) {
      mkdirSync(at(`${name}-tar`));
      execFileSync('tar', ['xf', at(`${name}.tar`), '-C', at(`${name}-tar`)]);
    }
    check(at('one-tar/provenance.json'), 'amd64');
    assert.equal(readFileSync(at('one-tar/d/two'), 'utf8'), 'second\n');
    for (const arch of ['amd64', 'arm64']) {
      check(at(`both/linux_${arch}/a-provenance.json`), arch);
      check(at(`both-tar/linux_${arch}/provenance.json`), arch);
      check(at(`mixed/provenance.linux_${arch}.json`), arch, subjectsFor(arch).slice(0, 1));
      assert.equal(readFileSync(at(`both-tar/linux_${arch}/one`), 'utf8'), 'first <&>\n');
    }
    // Clients that say nothing get the files alone, and nothing of it stays here.
    await buildx.ok(['build', '-o', '../plain', '.'], { in: 'files' });
    assert.deepEqual(readdirSync(at('plain')).sort(), ['amd64', 'd', 'one']);
    assert.deepEqual(
      readdirSync(join(engine.dir, 'data/tmp')).filter((name) => name.startsWith('build-statements-')),
      [],
    );
  });

  test('is refused where it cannot be kept, and where it is not known', async () => {
    const refusals: readonly [args: string[], text: RegExp][] = [
      [['--provenance=mode=max', '-t', 'kept:1'], /attestations are kept in the index of an image/],
      [
        ['--provenance=mode=max', '-o', 'type=local,dest=../out,attestation-prefix=../up-'],
        /invalid value "..\/up-" of attestation-prefix/,
      ],
      [['--provenance=mode=most', '-o', 'type=oci,dest=../x.tar'], /invalid mode "most"/],
      [['--provenance=mode=min,version=v9', '-o', 'type=oci,dest=../x.tar'], /invalid version "v9"/],
    ];
    for (const [args, text] of refusals) {
      const refused = await buildx.run(['build', ...args, '.'], { in: 'a' });
      assert.notEqual(refused.status, 0, args.join(' '));
      assert.match(refused.stderr, text);
    }
    // A build with what clients ask for by themselves has none, and is the same each time.
    await buildx.ok(['build', '-o', 'type=oci,dest=../plain.tar', '.'], { in: 'a' });
    const plain = ociFiles(join(buildx.directory, 'plain.tar'));
    const [entry] = (plain.json('index.json') as Index).manifests;
    assert.equal(entry?.mediaType, 'application/vnd.oci.image.manifest.v1+json');
  });
});
