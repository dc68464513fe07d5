import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whole } from '../../text/turns.js';
import { columns, lintText, outlineText } from './call-text.js';
import { checkParts } from './check.js';
import { outlineParts } from './outline.js';
import { parseDockerfile } from './parse.js';

const AMD64 = { os: 'linux', architecture: 'amd64', variant: '', osVersion: '' };
const OPTIONS = {
  target: '',
  buildArgs: new Map<string, string>(),
  host: AMD64,
  buildPlatform: AMD64,
  targetPlatform: AMD64,
  hasContext: () => false,
  allStages: true,
  image: () => undefined,
};
const KEYS = 600;

test('hundreds of warnings about the same long instruction do not show its lines again and again', () => {
  const lines = Array.from({ length: KEYS }, (_, at) => `  password_${at}=${'x'.repeat(400)}`);
  const text = `FROM scratch\nENV \\\n${lines.join(' \\\n')}\n`;
  const { warnings } = whole(checkParts(parseDockerfile(text), OPTIONS));
  assert.equal(warnings.length, 500);
  const shown = lintText('Dockerfile', text, warnings);
  assert.equal(shown.split('WARNING: SecretsUsedInArgOrEnv').length - 1, 500);
  assert.ok(shown.includes(`   2 | >>> ENV \\\n`));
  assert.ok(shown.length < 2 << 20, `${shown.length} characters`);
});

test('one long cell does not make all rows as long', () => {
  const rows = [['long', 'b'], ['x'.repeat(100_000), 'c'], ...Array.from({ length: 1000 }, () => ['short', 'd'])];
  const shown = columns(rows, 3);
  assert.ok(shown.length < 400_000, `${shown.length} characters`);
  assert.match(shown, /^long {199}b\nx{100000} {3}c\nshort {198}d\n/);
});

test('an outline has the arguments of long instructions, but not their lines for each', () => {
  const args = Array.from({ length: 4000 }, (_, at) => `a${at}=${at}`);
  // The long one has fewer lines than would be one range.
  const long = args.slice(20).map((arg, at) => (at % 50 === 0 ? `\\\n${arg}` : arg));
  const text = `# a7 says something\nARG ${args.slice(0, 20).join(' ')}\nFROM scratch\nARG ${long.join(' ')}\nARG a7\n`;
  const dockerfile = parseDockerfile(text);
  const outline = whole(outlineParts(dockerfile, whole(checkParts(dockerfile, OPTIONS))));
  assert.equal(outline.args?.length, 3981);
  assert.deepEqual(outline.args?.[0], {
    name: 'a7',
    description: 'says something',
    value: '7',
    location: { ranges: [{ start: { line: 2 }, end: { line: 2 } }] },
  });
  const ranges = outline.args?.reduce((sum, { location }) => sum + location.ranges.length, 0) ?? 0;
  assert.ok(ranges < 20_000, `${ranges} ranges`);
  assert.equal(outlineText(outline).split('\n').length, 3981 + 3);
  const three = ['x', 'y', 'z'].map((name) => `ARG ${args.map((arg) => `${name}${arg}`).join(' \\\n')}\n`);
  const many = parseDockerfile(`FROM scratch\n${three.join('')}`);
  assert.throws(
    () => whole(outlineParts(many, whole(checkParts(many, OPTIONS)))),
    /the target has too many arguments for an outline/,
  );
});
