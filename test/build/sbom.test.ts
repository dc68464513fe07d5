/** Lists of what is in an image, which a program makes that the client has chosen, with the unmodified buildx. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { type Descriptor, type Index, type Manifest, ociFiles } from '../support/oci-archive.js';

const SPDX = 'https://spdx.dev/Document';

/** Lists the names of files, and what it was given; `MODE` says how else to behave. */
const SCANNER = `#!/bin/sh
set -e
echo "scanner begins"
cd "$BUILDKIT_SCAN_DESTINATION"
touch /elsewhere /tmp/there
statement() {
  echo '{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"'"$2"'","subject":[{"name":"not this"}],'
  echo '"predicate":{"name":"'"$1"'","note":"<&>","by":"'"$BUILDKIT_SCAN_BY$BUILDKIT_SCAN_by"'","files":['
  for file in "$3"/*; do echo '"'"$(basename "$file")"'",'; done
  echo 'null]}}'
}
scan() { statement "$(basename "$1")" ${SPDX} "$1" > "$(basename "$1").spdx.json"; }
scan "$BUILDKIT_SCAN_SOURCE"
if touch "$BUILDKIT_SCAN_SOURCE/new" 2>/dev/null; then exit 9; fi
if [ -n "$BUILDKIT_SCAN_SOURCE_EXTRAS" ]; then
  for extra in "$BUILDKIT_SCAN_SOURCE_EXTRAS"/*; do scan "$extra"; done
fi
case "$BUILDKIT_SCAN_MODE$BUILDKIT_SCAN_mode" in
  end) exit 7 ;;
  host) ln -s ../../../../../../etc/hostname a.spdx.json ;;
  two) cat sbom.spdx.json sbom.spdx.json > a.spdx.json ;;
esac
`;

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'sbom-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
let engine: Engine;
let image: string;
let buildx: Buildx;

interface Statement {
  readonly _type: string;
  readonly predicateType: string;
  readonly subject: readonly { readonly name: string; readonly digest: { readonly sha256: string } }[];
  readonly predicate: { readonly name: string; readonly note: string; readonly by: string; readonly files: string[] };
}

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  buildx = new Buildx(join(directory, 'work'), engine.host);
  buildx.write('scanner/scan', SCANNER);
  // Files of the image in the place of the statements do not count.
  buildx.write(
    'scanner/Dockerfile',
    `FROM ${image}\nCOPY --chmod=755 scan /scan\nCOPY scan /run/out/old\nUSER 7\nCMD ["/scan"]\n`,
  );
  await buildx.ok(['build', '-t', 'scanner:1', '.'], { in: 'scanner' });
  buildx.write(
    'app/Dockerfile',
    `FROM ${image} AS tools\nARG BUILDKIT_SBOM_SCAN_STAGE=true\nRUN mkdir /t; echo x >/made-of-tools\n` +
      `FROM ${image} AS other\nRUN echo y >/made-of-other\n` +
      'FROM scratch\nARG BUILDKIT_SBOM_SCAN_CONTEXT\n' +
      'COPY --from=tools /made-of-tools /a\nCOPY --from=other /made-of-other /b\n',
  );
  buildx.write('app/of-context', 'c');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

const sbom = (more = ''): string => `--attest=type=sbom,generator=scanner:1${more}`;
const at = (name: string): string => join(buildx.directory, name);

/** Returns the statements in an archive, in their order, with the digest of the image that they are beside. */
function statementsIn(archive: string): { readonly about: string | undefined; readonly statements: Statement[] } {
  const files = ociFiles(at(archive));
  const [entry] = (files.json('index.json') as Index).manifests;
  const { manifests } = files.blob(entry as Descriptor) as Index;
  const beside = manifests.find(({ annotations }) => annotations?.['vnd.docker.reference.type'] !== undefined);
  assert.ok(beside);
  const { layers } = files.blob(beside) as Manifest;
  const statements = layers.map((layer) => {
    const statement = files.blob(layer) as Statement;
    assert.equal(layer.annotations?.['in-toto.io/predicate-type'], statement.predicateType);
    return statement;
  });
  return { about: beside.annotations?.['vnd.docker.reference.digest'], statements };
}

/** Names in the temporary directory of the daemon that a scan could have left. */
function left(): string[] {
  return readdirSync(join(engine.dir, 'data/tmp')).filter((name) => name.startsWith('build-'));
}

describe('docker build --sbom', { skip }, () => {
  test('has a program list what is in the image, beside it in its index', async () => {
    const built = await buildx.ok(
      ['build', sbom(',BY=me'), '--provenance=mode=min', '-o', 'type=oci,dest=../one.tar,name=app:1', '.'],
      { in: 'app' },
    );
    assert.match(built.stderr, /\[linux\/amd64\] generating sbom using scanner:1/);
    assert.match(built.stderr, /scanner begins/);
    const { about, statements } = statementsIn('one.tar');
    const [core, tools, provenance, ...others] = statements;
    assert.deepEqual(others, []);
    assert.equal(core?._type, 'https://in-toto.io/Statement/v0.1');
    assert.equal(core.predicateType, SPDX);
    assert.deepEqual(core.subject, [
      { name: 'pkg:docker/app@1?platform=linux%2Famd64', digest: { sha256: about?.slice(7) } },
    ]);
    assert.deepEqual(core.predicate, { name: 'sbom', note: '<&>', by: 'me', files: ['a', 'b', null] });
    assert.equal(tools?.predicate.name, 'sbom-tools');
    assert.ok(tools.predicate.files.includes('made-of-tools'));
    assert.equal(provenance?.predicateType, 'https://slsa.dev/provenance/v0.2');
    // The same files are not looked into twice, and another value of a parameter is another scan.
    const again = await buildx.ok(
      ['build', sbom(',BY=me'), '--build-arg', 'BUILDKIT_SBOM_SCAN_CONTEXT=1', '-o', 'type=local,dest=../out', '.'],
      { in: 'app' },
    );
    assert.match(again.stderr, /scanner begins/);
    const context = JSON.parse(readFileSync(at('out/sbom-context.spdx.json'), 'utf8')) as Statement;
    assert.deepEqual(context.predicate.files, ['Dockerfile', 'of-context', null]);
    const cached = await buildx.ok(['build', sbom(',BY=me'), '-o', 'type=oci,dest=../two.tar,name=app:1', '.'], {
      in: 'app',
    });
    assert.doesNotMatch(cached.stderr, /scanner begins/);
    assert.deepEqual(statementsIn('two.tar').statements, [core, tools]);
  });

  test('gives files a list beside them, and each platform its own', async () => {
    await buildx.ok(['build', sbom(), '-o', 'type=local,dest=../plain,attestation-prefix=p-', '.'], { in: 'app' });
    assert.deepEqual(readdirSync(at('plain')).sort(), ['a', 'b', 'p-sbom-tools.spdx.json', 'p-sbom.spdx.json']);
    assert.equal(statSync(at('plain/p-sbom.spdx.json')).mode & 0o777, 0o600);
    const { subject, predicate } = JSON.parse(readFileSync(at('plain/p-sbom.spdx.json'), 'utf8')) as Statement;
    assert.deepEqual(subject.map(({ name }) => name).sort(), ['a', 'b']);
    assert.deepEqual(predicate.files, ['a', 'b', null]);
    buildx.write('both/Dockerfile', 'FROM scratch\nARG TARGETARCH\nCOPY $TARGETARCH /\n');
    for (const arch of ['amd64', 'arm64']) buildx.write(`both/${arch}/of-${arch}`, 'x');
    const both = [
      '--platform=linux/amd64,linux/arm64',
      sbom(),
      '-o',
      'type=local,dest=../both-out,platform-split=false',
    ];
    await buildx.ok(['build', ...both, '.'], { in: 'both' });
    for (const arch of ['amd64', 'arm64']) {
      const text = readFileSync(at(`both-out/sbom.spdx.linux_${arch}.json`), 'utf8');
      assert.deepEqual((JSON.parse(text) as Statement).predicate.files, [`of-${arch}`, null]);
    }
    // The program needs nothing to look into.
    buildx.write('none/Dockerfile', 'FROM scratch\nLABEL a=b\n');
    await buildx.ok(['build', sbom(), '-o', 'type=oci,dest=../none.tar', '.'], { in: 'none' });
    assert.deepEqual(statementsIn('none.tar').statements[0]?.predicate.files, ['*', null]);
  });

  // Each kind of file and text that is refused: src/build/outputs/read-statements.test.ts.
  test('believes nothing of what the program leaves', async () => {
    const refusals: readonly [mode: string, text: RegExp][] = [
      ['end', /process "\/scan" did not complete successfully: exit code: 7/],
      ['host', /"a.spdx.json" of the scan is not a regular file/],
      ['two', /cannot decode in-toto statement "a.spdx.json": unexpected content after JSON/],
    ];
    for (const [mode, text] of refusals) {
      const refused = await buildx.run(['build', sbom(`,MODE=${mode}`), '-o', 'type=local,dest=../no', '.'], {
        in: 'app',
      });
      assert.notEqual(refused.status, 0, mode);
      assert.match(refused.stderr, text);
    }
    assert.deepEqual(left(), []);
    // The daemon is there, and so is the image of the program as it was.
    const { Config } = await callJson<{ Config: { User: string } }>(engine.socketPath, 'GET', '/images/scanner:1/json');
    assert.equal(Config.User, '7');
  });

  test('is refused where no program is named, and where the list cannot be kept', async () => {
    const refusals: readonly [args: string[], text: RegExp][] = [
      [['--attest=type=sbom,generator=', '-o', 'type=oci,dest=../x.tar'], /sbom generator cannot be empty/],
      [['--attest=type=sbom,generator=UPPER/x', '-o', 'type=oci,dest=../x.tar'], /UPPER\/x/],
      [
        ['--attest=type=sbom,generator=scanner:1,A B=c', '-o', 'type=oci,dest=../x.tar'],
        /invalid parameter "[Aa] [Bb]"/,
      ],
      [['--attest=type=other', '-o', 'type=oci,dest=../x.tar'], /unknown attestation type "other"/],
      [[sbom(), '-t', 'kept:1'], /attestations are kept in the index of an image/],
    ];
    for (const [args, text] of refusals) {
      const refused = await buildx.run(['build', ...args, '.'], { in: 'app' });
      assert.notEqual(refused.status, 0, args.join(' '));
      assert.match(refused.stderr, text);
    }
  });
});
