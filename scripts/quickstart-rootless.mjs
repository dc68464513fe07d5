/**
 * The daemon and the registry of a quickstart by an ordinary user. Both are in namespaces of their own (see
 * docs/rootless.md), which a user's other daemon has no part in; the registry gets a port on the machine's loopback
 * address, too. Only for a build that exists.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { ROOT, run } from './ensure-packages.mjs';

/** One that ends is seen at once, and a slow machine takes its time. */
const START_LIMIT_MS = 10 * 60_000;

const built = (name) => import(new URL(`../dist/test/support/${name}.js`, import.meta.url).href);

/** Starts the daemon. Resolves when it answers, with what the quickstart needs to know of it. */
export async function startRootlessEngine() {
  const { call } = await built('http');
  const { waitFor } = await built('wait');
  const dir = mkdtempSync(join(tmpdir(), 'engined-'));
  const runtimeDir = join(dir, 'run');
  for (const path of [runtimeDir, join(dir, 'bin')]) mkdirSync(path, { mode: 0o700 });
  symlinkSync(join(ROOT, 'dist', 'bundle', 'main.js'), join(dir, 'bin', 'engined'));
  writeFileSync(join(dir, 'daemon.json'), '{}');
  const child = spawn(
    join(ROOT, 'packaging', 'engined-rootless'),
    ['--config-file', join(dir, 'daemon.json'), '--data-root', join(dir, 'data')],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
      // A signal of the terminal is for the quickstart, which ends the daemon.
      detached: true,
      env: { ...process.env, XDG_RUNTIME_DIR: runtimeDir, PATH: `${join(dir, 'bin')}${delimiter}${process.env.PATH}` },
    },
  );
  const ended = once(child, 'exit');
  const socketPath = join(runtimeDir, 'engine.sock');
  const close = async () => {
    child.kill('SIGTERM');
    await ended;
    // Some files may be those of subordinate ids, which only root of a namespace removes.
    run('rootlesskit', ['rm', '-rf', dir]);
  };
  try {
    const answers = async () => {
      if (child.exitCode !== null) throw new Error('engined-rootless has ended');
      return (await call(socketPath, 'GET', '/_ping').catch(() => undefined))?.status === 200;
    };
    await waitFor('the daemon to answer', answers, START_LIMIT_MS);
  } catch (error) {
    await close();
    throw error;
  }
  return { dir, socketPath, host: `unix://${socketPath}`, pid: child.pid, runtimeDir, close };
}

/** Starts a registry in the namespaces of the daemon. */
export async function startInnerRegistry({ runtimeDir }) {
  const { callJson } = await built('http');
  const { startRegistry } = await built('registry');
  const state = join(runtimeDir, 'engine-rootlesskit');
  const target = readFileSync(join(state, 'child_pid'), 'utf8').trim();
  const enter = ['nsenter', '--user', '--preserve-credentials', '--mount', '--net', '--target', target];
  const registry = await startRegistry({ starter: enter });
  const port = Number(new URL(registry.url).port);
  const address = { parentIP: '127.0.0.1', parentPort: port, childIP: '127.0.0.1', childPort: port };
  await callJson(join(state, 'api.sock'), 'POST', '/v1/ports', { json: { proto: 'tcp4', ...address } }, 201);
  return registry;
}
