/** The README's first command, as a machine runs it. */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { makeOrdinaryUser, processesOfUser } from '../support/rootless.js';

/** This file is in dist/test. */
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const NOT_COPIED = ['.git', 'node_modules'].map((name) => join(ROOT, name));

/**
 * Quickstart builds anew, which would take the program away from the tests beside this one. A link to the dependencies
 * would be other files to the compiler, which then checks everything again. They cannot be written through the mount.
 */
function copyOfThis(): { readonly copy: string; readonly dependencies: string } {
  const copy = mkdtempSync(join(tmpdir(), 'clone-'));
  cpSync(ROOT, copy, { recursive: true, filter: (path) => !NOT_COPIED.includes(path) });
  const dependencies = join(copy, 'node_modules');
  mkdirSync(dependencies);
  execFileSync('mount', ['-o', 'bind,ro', join(ROOT, 'node_modules'), dependencies]);
  return { copy, dependencies };
}

/**
 * Makes an `npm` that notes what it is told to do. For root the copy is built already, as the tests themselves began
 * with it; the ordinary user builds it.
 */
function notingNpm(t: TestContext): { readonly path: string; calls(): string } {
  const path = mkdtempSync(join(tmpdir(), 'npm-'));
  t.after(() => rmSync(path, { recursive: true }));
  writeFileSync(join(path, 'npm'), `#!/bin/sh\necho "$*" >>'${path}/calls'\n`, { mode: 0o755 });
  return { path, calls: () => readFileSync(join(path, 'calls'), 'utf8') };
}

/** Checks the output of a run. */
function check(stdout: string): void {
  for (let number = 1; number <= 9; number++) assert.match(stdout, new RegExp(`^${number}\\. `, 'm'));
  assert.match(stdout, /Status: Downloaded newer image for /);
  assert.match(stdout, /-> \{"StatusCode":0\}\n/);
  assert.match(stdout, /-> hello world\n/);
  assert.match(stdout, /-> \{"Id":"sha256:[0-9a-f]{64}"\}\n\ncleaning up\n$/);
  const dir = /files in (\S+)/.exec(stdout)?.[1] ?? '';
  assert.match(dir, /^\/.+engined-/);
  assert.equal(existsSync(dir), false);
}

test('quickstart shows the nine operations and takes all away again, for root and an ordinary user', async (t) => {
  const { copy, dependencies } = copyOfThis();
  t.after(() => {
    execFileSync('umount', [dependencies]);
    rmSync(copy, { recursive: true });
  });
  const script = join(copy, 'scripts', 'quickstart.mjs');
  const run = promisify(execFile);
  const npm = notingNpm(t);
  const env = { ...process.env, PATH: `${npm.path}:${process.env['PATH']}` };
  check((await run(process.execPath, [script, '--once'], { timeout: 600_000, env })).stdout);
  assert.equal(npm.calls(), 'run --silent build\n');

  const place = mkdtempSync(join(tmpdir(), 'ordinary-'));
  const home = mkdtempSync(join(tmpdir(), 'home-'));
  for (const path of [place, copy]) chmodSync(path, 0o755);
  const user = makeOrdinaryUser(place);
  const owner = `${user.uid}:${user.uid}`;
  execFileSync('find', [copy, '-path', dependencies, '-prune', '-o', '-exec', 'chown', owner, '{}', '+']);
  chownSync(home, user.uid, user.uid);
  const [program = '', ...args] = user.as(home, process.execPath, script, '--once', '--rootless');
  check((await run(program, args, { timeout: 600_000 })).stdout);
  assert.deepEqual(processesOfUser(user), []);
});
