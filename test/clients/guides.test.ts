/** The guides: their commands work as they stand there, and their pages can be made. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import { buildxPlugins, dockerCli, SHORT_LIVED } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { endDaemon } from '../support/successor.js';

interface DocsScript {
  readonly brokenLinks: (texts: ReadonlyMap<string, string>, exists: (path: string) => boolean) => string[];
}

/** This file is in dist/test/clients. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const SCRIPT = join(ROOT, 'scripts/docs.mjs');
const MAIN = join(ROOT, 'dist/bundle/main.js');
/** Blocks with this mark are run. */
const COMMANDS = /^```sh run\n([^]*?)^```/gm;
const PATIENCE_MS = 180_000;

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'guides-'));
cleanup.add(async () => rmSync(directory, { recursive: true }));
after(() => cleanup.run());

let engine: Engine;
let env: Readonly<Record<string, string>>;

before(async () => {
  let image: string;
  ({ engine, image } = await startEngineWithImage(cleanup));
  // The daemon that the guides have handed over to is no child of this process.
  cleanup.add(() => endDaemon(engine));
  cleanup.add(() => removeContainers(engine));
  // The guides would pull it.
  await callJson(engine.socketPath, 'POST', `/images/${image}/tag?repo=busybox&tag=latest`);
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  symlinkSync(dockerCli(), join(bin, 'docker'));
  symlinkSync(MAIN, join(bin, 'engined'));
  const cli = join(directory, 'cli');
  mkdirSync(cli);
  writeFileSync(join(cli, 'config.json'), JSON.stringify({ cliPluginsExtraDirs: [buildxPlugins()] }));
  const config = { 'exec-root': join(engine.dir, 'exec'), 'data-root': join(engine.dir, 'data') };
  writeFileSync(join(directory, 'daemon.json'), JSON.stringify(config));
  const path = [bin, dirname(process.execPath), '/usr/sbin', '/usr/bin', '/sbin', '/bin'].join(':');
  env = { ...SHORT_LIVED, PATH: path, DOCKER_HOST: engine.host, DOCKER_CONFIG: cli };
});

/** The guides name the places of an installed daemon. */
function withOwnPlaces(commands: string): string {
  return commands
    .replaceAll('unix:///run/engine.sock', engine.host)
    .replaceAll('/run/engine.sock', engine.socketPath)
    .replaceAll('/etc/engine/daemon.json', join(directory, 'daemon.json'))
    .replaceAll('/var/run/engine.pid', join(engine.dir, 'engine.pid'))
    .replaceAll('docker pull busybox', 'true');
}

/** Guides in the order in which they are run, with what their commands say. Nothing else is needed before one. */
const GUIDES: ReadonlyMap<string, readonly RegExp[]> = new Map([
  ['first-steps', [/^hello$/m, /^it works$/m, /^built$/m]],
  ['hardening', [/^1000$/m, /^refused$/m, /^Seccomp:\s*2$/m, /this machine has what the daemon needs/]],
  [
    'troubleshooting',
    [/^OK/m, /^created 127: /m, /^cannot find my files$/m, /^status 3$/m, /^first 127\.0\.0\.1:18099/m],
  ],
  ['coming-from-dockerd', [/configuration OK/, /Loaded image: busybox:latest/, /^running unless-stopped$/m]],
  ['upgrade', [/^moved-web Up /m]],
]);

for (const [guide, expected] of GUIDES)
  test(`the commands of the guide ${guide} work one after the other`, () => {
    const text = readFileSync(join(ROOT, `docs/${guide}.md`), 'utf8');
    const blocks = [...text.matchAll(COMMANDS)].map(([, commands = '']) => commands);
    assert.ok(blocks.length >= 2, `${blocks.length} blocks`);
    let output = '';
    for (const commands of blocks) {
      const options = { env, cwd: directory, encoding: 'utf8', timeout: PATIENCE_MS } as const;
      const { status, stdout, stderr } = spawnSync('sh', ['-e', '-c', withOwnPlaces(commands)], options);
      assert.equal(status, 0, `${commands}\n${stdout}${stderr}`);
      output += stdout + stderr;
    }
    for (const one of expected) assert.match(output, one);
  });

test('the pages are made, and no link leads nowhere', () => {
  const output = join(directory, 'pages');
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT, '--output', output], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.match(readFileSync(join(output, 'index.html'), 'utf8'), /<a href="install\.html">/);
  assert.ok(existsSync(join(output, 'first-steps.html')));
  const pictures = readFileSync(join(output, 'performance.html'), 'utf8').matchAll(/<img src="([^"]+)"/g);
  for (const [, picture = ''] of pictures) assert.ok(existsSync(join(output, picture)), picture);
});

test('a link to a heading or a file that is not there is found', async () => {
  const { brokenLinks } = (await import(SCRIPT)) as DocsScript;
  const texts = new Map([
    ['README', '# A\n[b](docs/b.md#two-words) [c](docs/c.md) [x](https://x) [file](LICENSE)'],
    ['docs/b', '# B\n## Two `words`\n[up](../README.md#a) [own](#b) [gone](#c)'],
  ]);
  assert.deepEqual(
    brokenLinks(texts, (path) => path === 'LICENSE'),
    ['README.md: there is no docs/c.md', 'docs/b.md: there is no #c'],
  );
});
