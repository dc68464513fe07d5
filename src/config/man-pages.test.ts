import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { COMMANDS } from './argv.js';
import { bashCompletion, zshCompletion } from './completions.js';
import { configurationManPage, programManPage } from './man-pages.js';
import { PLATFORM } from './help.js';
import { OPTION_LIST } from './options.js';

const FACTS = { version: '1.2.3', date: '2026-01-02' };
const FLAGS = [...OPTION_LIST, ...COMMANDS, PLATFORM].flatMap(({ flag }) => (flag === undefined ? [] : [flag]));
/** Requests of roff that the pages use. */
const REQUESTS = new Set(['.TH', '.SH', '.TP', '.B', '.BI', '.BR', '.I', '.br']);

function lines(page: string): string[] {
  for (const line of page.split('\n'))
    if (/^[.']/.test(line)) assert.ok(REQUESTS.has(line.split(' ')[0] ?? ''), `no request of roff: ${line}`);
  return page.split('\n').map((line) => line.replaceAll('\\-', '-'));
}

test('the page of the program has each flag, and that of the file each key', () => {
  const program = lines(programManPage(FACTS));
  assert.equal(program[0], '.TH ENGINED 8 2026-01-02 "engined 1.2.3" "Container engine"');
  for (const flag of FLAGS)
    assert.ok(
      program.some((line) => line.includes(`--${flag}"`)),
      flag,
    );
  assert.ok(program.includes('.BI "--data-root" " string"'));
  const file = lines(configurationManPage(FACTS));
  for (const { key } of OPTION_LIST)
    if (key !== undefined)
      assert.ok(
        file.some((line) => line.split(' ')[1] === key),
        key,
      );
});

/** Returns what bash offers for the last of the words. */
function offered(...words: string[]): string[] {
  const ask = `COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _engined; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const script = `${bashCompletion()}\n${ask}`;
  return execFileSync('bash', ['-c', script, 'bash', 'engined', ...words], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean);
}

test('bash completes flags, values that are on a list, and commands', () => {
  assert.deepEqual(offered('--data-'), ['--data-root']);
  assert.deepEqual(offered('--log-level', 'wa'), ['warn']);
  assert.deepEqual(offered('--firewall-backend', ''), ['iptables', 'nftables']);
  assert.deepEqual(offered('--data-root', ''), [], 'a path is for readline to complete');
  assert.deepEqual(offered('fs'), ['fsck']);
  assert.deepEqual(offered('--debug', 'fs'), []);
  assert.deepEqual(offered('--').sort(), FLAGS.map((flag) => `--${flag}`).sort());
});

test('zsh gets each flag as one argument of _arguments', () => {
  const shell = ['-c', `_arguments() { printf '%s\\n' "$@"; }\n${zshCompletion()}`];
  const specs = execFileSync('sh', shell, { encoding: 'utf8' }).trimEnd().split('\n');
  assert.equal(specs.length, FLAGS.length + 1);
  for (const flag of FLAGS)
    assert.ok(
      specs.some((spec) => spec.replace('*', '').startsWith(`--${flag}[`)),
      flag,
    );
});
