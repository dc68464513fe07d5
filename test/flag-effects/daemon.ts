/** What is the daemon's own: its places, what it says, and how it is reached. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Authority } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { call } from '../support/http.js';
import { waitFor } from '../support/wait.js';
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
    const shown = ['--label', 'rack=seven', '--node-generic-resource', 'gpu=UUID7', '--selinux-enabled'];
    return {
      args: ['--host', 'tcp://127.0.0.1:0', '--tlsverify', '--debug', '--experimental', ...supervisor, ...shown],
      file: { 'max-concurrent-uploads': 1 },
      env: { ENGINE_CERT_PATH: certificates, ENGINE_TMPDIR: temporary },
    };
  },
  rows: {
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
      assert.deepEqual(namespaces, ['effects']);
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
    selinuxEnabled: async (scene) => {
      const { Warnings } = await scene.info<{ Warnings: string[] }>();
      assert.match(Warnings.join('\n'), /^WARNING: selinux-enabled has no effect/m);
    },
    certPath: async (scene) => {
      assert.equal(await shownName(scene), 'effects-server');
    },
    tmpDir: async (scene) => {
      assert.match(readdirSync(join(scene.dir, 'temporary')).join(), /^engined-[0-9a-f-]{36}$/);
      await Promise.resolve();
    },
    maxConcurrentUploads: async (scene) => {
      const cleanup = new Cleanup();
      try {
        const registry = await startUploadCounter(cleanup);
        await scene.docker('tag', scene.image, `${registry.host}/two/layers:1`);
        await scene.docker('push', `${registry.host}/two/layers:1`);
        assert.ok(registry.uploads >= 2, 'each layer was uploaded');
        assert.equal(registry.most, 1);
      } finally {
        await cleanup.run();
      }
    },
  },
};
