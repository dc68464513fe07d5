/** Options about the daemon itself: its places, its messages, and how it is reached. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Authority } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { call } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';
import { ANNOUNCED, ANNOUNCED_ENVIRONMENT, ANNOUNCED_FLAGS } from './announced.js';
import { ONE, type Group, type Scene } from './scene.js';
import { startUploadCounter } from './upload-counter.js';

/** Port of the listener, which the kernel chose. */
const port = (scene: Scene): number => Number(/tcp:\/\/127\.0\.0\.1:(\d+)/.exec(scene.engine.log)?.[1]);

/** Common name of the certificate that the daemon shows. */
async function shownName(scene: Scene): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: port(scene), rejectUnauthorized: false });
  socket.on('error', () => undefined);
  await once(socket, 'secureConnect');
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return CN;
}

async function push(scene: Scene, reference: string): Promise<void> {
  await scene.docker('tag', scene.image, reference);
  await scene.docker('push', reference);
}

async function withCleanup(body: (cleanup: Cleanup) => Promise<void>): Promise<void> {
  const cleanup = new Cleanup();
  try {
    await body(cleanup);
  } finally {
    await cleanup.run();
  }
}

export const daemon: Group = {
  title: 'the daemon itself',
  setUp(dir) {
    const certificates = join(dir, 'certificates');
    mkdirSync(certificates);
    const ca = new Authority(dir, 'effects-ca');
    const { cert, key } = ca.issue('effects-server', { usage: 'serverAuth', altNames: 'IP:127.0.0.1' });
    for (const [name, path] of Object.entries({ 'ca.pem': ca.cert, 'cert.pem': cert, 'key.pem': key })) {
      copyFileSync(path, join(certificates, name));
    }
    const temporary = join(dir, 'temporary');
    mkdirSync(temporary);
    const supervisor = ['--cri-supervisor', '--supervisor-namespace', 'effects'];
    const plugins = ['--supervisor-plugins-namespace', 'plugins.effects'];
    const shown = ['--experimental', '--label', 'rack=seven', '--node-generic-resource', 'gpu=UUID7'];
    return {
      args: [
        '--host',
        'tcp://127.0.0.1:0',
        '--tlsverify',
        '--debug',
        ...supervisor,
        ...plugins,
        ...shown,
        ...ANNOUNCED_FLAGS,
      ],
      file: { 'max-concurrent-uploads': 1, 'max-download-attempts': 1 },
      env: { ...ANNOUNCED_ENVIRONMENT, ENGINE_CERT_PATH: certificates, ENGINE_TMPDIR: temporary },
    };
  },
  rows: {
    ...ANNOUNCED,
    supervisorPluginsNamespace: async ({ engine }) => {
      const config = {
        interface: { types: ['docker.volumedriver/1.0'], socket: 'none.sock' },
        entrypoint: ['/no/such/program'],
      };
      const body = tarOf([{ path: 'config.json', content: JSON.stringify(config) }]);
      const headers = { 'Content-Type': 'application/x-tar' };
      const made = await call(engine.socketPath, 'POST', '/plugins/create?name=effects', { body, headers });
      assert.equal(made.status, 204, made.text);
      const enabled = await call(engine.socketPath, 'POST', '/plugins/effects/enable');
      assert.match(enabled.text, /no such file or directory/);
      const tasks = readdirSync(join(engine.dir, 'exec/supervisor/state/io.containerd.runtime.v2.task'));
      assert.ok(tasks.includes('plugins.effects'), tasks.join());
    },
    dataRoot: async (scene) => {
      assert.ok((await scene.proc(ONE, 'mountinfo')).includes(`,upperdir=${scene.engine.dir}/data/`));
    },
    execRoot: async (scene) => {
      assert.ok(statSync(join(scene.engine.dir, 'exec/supervisor/supervisor.sock')).isSocket());
      await Promise.resolve();
    },
    pidfile: async (scene) => {
      assert.equal(readFileSync(join(scene.engine.dir, 'engine.pid'), 'utf8').trim(), String(scene.engine.pid));
      await Promise.resolve();
    },
    supervisorNamespace: async (scene) => {
      const namespaces = readdirSync(join(scene.engine.dir, 'exec/supervisor/state/io.containerd.runtime.v2.task'));
      assert.deepEqual(namespaces.toSorted(), ['effects', 'plugins.effects']);
      await Promise.resolve();
    },
    criSupervisor: async (scene) => {
      const socket = join(scene.engine.dir, 'exec/supervisor/supervisor.sock');
      const plugins = execFileSync('ctr', ['--address', socket, 'plugins', 'ls'], { encoding: 'utf8' });
      assert.match(plugins, /^io\.containerd\.grpc\.v1 +cri .* ok *$/m);
      await Promise.resolve();
    },
    debug: async (scene) => {
      await scene.run([], 'true');
      await waitFor('a line for those who look for errors', () => scene.engine.log.includes('level=debug'));
    },
    experimental: async (scene) => {
      assert.equal((await call(scene.engine.socketPath, 'GET', '/_ping')).headers['docker-experimental'], 'true');
    },
    labels: async (scene) => {
      assert.deepEqual((await scene.info<{ Labels: string[] }>()).Labels, ['rack=seven']);
    },
    nodeGenericResources: async (scene) => {
      const { GenericResources } = await scene.info<{ GenericResources: unknown }>();
      assert.deepEqual(GenericResources, [{ NamedResourceSpec: { Kind: 'gpu', Value: 'UUID7' } }]);
    },
    certPath: async (scene) => {
      assert.equal(await shownName(scene), 'effects-server');
    },
    tmpDir: async (scene) => {
      assert.match(readdirSync(join(scene.dir, 'temporary')).join(), /^engined-[0-9a-f-]{36}$/);
      await Promise.resolve();
    },
    maxConcurrentUploads: (scene) =>
      withCleanup(async (cleanup) => {
        const counter = await startUploadCounter(cleanup);
        await push(scene, `${counter.host}/two/layers:1`);
        // Two layers and the configuration, at least.
        assert.ok(counter.uploads.size >= 3);
        assert.equal(counter.most, 1);
      }),
    // Pushes have attempts of their own, whatever pulls have.
    maxDownloadAttempts: (scene) =>
      withCleanup(async (cleanup) => {
        const counter = await startUploadCounter(cleanup, { breaksFirst: true });
        await push(scene, `${counter.host}/two/layers:2`);
        assert.equal(counter.hasBroken, true);
      }),
  },
};
