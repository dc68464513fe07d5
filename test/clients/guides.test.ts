/** The guides: their commands work as they stand there, and their pages can be made. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins, dockerCli } from '../support/dockerd.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';

interface DocsScript {
  readonly brokenLinks: (texts: ReadonlyMap<string, string>, exists: (path: string) => boolean) => string[];
}

/** This file is in dist/test/clients. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const SCRIPT = join(ROOT, 'scripts/docs.mjs');
/** Blocks with this mark are run. */
const COMMANDS = /^```sh run\n([^]*?)^```/gm;
const PATIENCE_MS = 180_000;

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'guides-'));
cleanup.add(async () => rmSync(directory, { recursive: true }));
after(() => cleanup.run());

test('the commands of the first steps work one after the other', async () => {
  const { engine, image } = await startEngineWithImage(cleanup);
  // The guide would pull it.
  await callJson(engine.socketPath, 'POST', `/images/${image}/tag?repo=busybox&tag=latest`);
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  symlinkSync(dockerCli(), join(bin, 'docker'));
  const config = join(directory, 'cli');
  mkdirSync(config);
  writeFileSync(join(config, 'config.json'), JSON.stringify({ cliPluginsExtraDirs: [buildxPlugins()] }));
  const text = readFileSync(join(ROOT, 'docs/first-steps.md'), 'utf8');
  const blocks = [...text.matchAll(COMMANDS)].map(([, commands = '']) => commands);
  assert.ok(blocks.length >= 6, `${blocks.length} blocks`);
  const env = { PATH: `${bin}:/usr/bin:/bin`, DOCKER_HOST: engine.host, DOCKER_CONFIG: config };
  let output = '';
  for (const commands of blocks) {
    const options = { env, encoding: 'utf8', timeout: PATIENCE_MS } as const;
    const { status, stdout, stderr } = spawnSync('sh', ['-e', '-c', commands], options);
    assert.equal(status, 0, `${commands}\n${stdout}${stderr}`);
    output += stdout;
  }
  for (const expected of [/^hello$/m, /^it works$/m, /^built$/m]) assert.match(output, expected);
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
