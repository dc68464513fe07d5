/** A supervisor that somebody else has started, and a daemon that says little. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { containerdConfig, containerdPaths, type ContainerdPaths } from '../../src/supervisor/containerd-config.js';
import { waitFor } from '../support/wait.js';
import { ONE, type Group, type Scene } from './scene.js';

/** A machine may be slow. */
const START_MS = 60_000;

const places = (dir: string): ContainerdPaths => containerdPaths(join(dir, 'exec'), join(dir, 'data'));

/** Lines of the daemon, among which is one of level error: that of a reload of a damaged file. */
async function lines(scene: Scene): Promise<readonly string[]> {
  writeFileSync(join(scene.engine.dir, 'daemon.json'), '{');
  process.kill(scene.engine.pid, 'SIGHUP');
  await waitFor('the line', () => scene.engine.log.includes('reload failed'));
  return scene.engine.log.trimEnd().split('\n');
}

export const supervisor: Group = {
  title: 'a supervisor of somebody else, and a short log',
  async setUp(dir, cleanup) {
    const { config, socket } = places(dir);
    mkdirSync(join(dir, 'exec/supervisor'), { recursive: true });
    writeFileSync(config, containerdConfig(places(dir), { criEnabled: false, debug: false }));
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'containerd', '--config', config], { stdio: 'ignore' });
    const ended = once(child, 'exit');
    cleanup.add(async () => {
      child.kill('SIGTERM');
      await ended;
    });
    await waitFor('containerd', () => existsSync(socket) && statSync(socket).isSocket(), START_MS);
    return { args: ['--supervisor', socket, '--log-format', 'json', '--log-level', 'error'] };
  },
  rows: {
    supervisor: async (scene) => {
      const tasks = readdirSync(join(places(scene.dir).state, 'io.containerd.runtime.v2.task/engine'));
      assert.deepEqual(tasks, [await scene.id(ONE)]);
      assert.equal(existsSync(join(scene.engine.dir, 'exec/supervisor/supervisor.pid')), false);
    },
    logFormat: async (scene) => {
      for (const line of await lines(scene)) {
        assert.deepEqual(Object.keys(JSON.parse(line) as object).slice(0, 3), ['level', 'msg', 'time']);
      }
    },
    logLevel: async (scene) => {
      for (const line of await lines(scene)) assert.match(line, /\berror\b/);
    },
  },
};
