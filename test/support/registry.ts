/**
 * A real registry (Debian's docker-registry) on a free loopback port with a store of its own, for tests and benches.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SHORT_LIVED } from './dockerd.js';

export interface TestRegistry {
  /** `127.0.0.1:port`, the first part of image names in this registry. */
  readonly host: string;
  /** `http://127.0.0.1:port`. */
  readonly url: string;
  /** Ends the process and deletes its store. Idempotent. */
  stop(): Promise<void>;
}

export interface RegistryOptions {
  /** Members of the registry's configuration file to add: `auth`, `http.tls`, `proxy` as raw YAML text. */
  readonly extraConfig?: string;
  /** Directory for blobs and manifests that outlives the registry. Default: a temporary one. */
  readonly storeDir?: string;
  /** Program that starts it, with arguments before its own. Default: none, so it is started as it is. */
  readonly starter?: readonly string[];
  /** Lines under `http:`, indented by two spaces. */
  readonly httpConfig?: string;
}

/** Resolves when the registry answers. The kernel chooses the port, so that parallel tests never collide. */
export async function startRegistry(options: RegistryOptions = {}): Promise<TestRegistry> {
  const dir = await mkdtemp(join(tmpdir(), 'engined-registry-'));
  const config = [
    'version: 0.1',
    'log: {level: info, formatter: text, accesslog: {disabled: true}}',
    `storage: {filesystem: {rootdirectory: ${options.storeDir ?? join(dir, 'data')}}, delete: {enabled: true}}`,
    'http:',
    '  addr: 127.0.0.1:0',
    options.httpConfig ?? '  relativeurls: true',
    options.extraConfig ?? '',
  ].join('\n');
  const configPath = join(dir, 'config.yml');
  await writeFile(configPath, config);

  const [program, ...args] = [...(options.starter ?? []), 'docker-registry', 'serve', configPath];
  // A quarter of its processor time would go into collecting garbage.
  const env = { ...process.env, ...SHORT_LIVED };
  const child = spawn(program ?? '', args, { stdio: ['ignore', 'ignore', 'pipe'], env });
  const ended = once(child, 'exit').catch(() => undefined);
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    stopped ??= (async () => {
      child.kill('SIGKILL');
      await ended;
      await rm(dir, { recursive: true, force: true });
    })();
    return stopped;
  };

  const port = await new Promise<string>((resolve, reject) => {
    let log = '';
    const read = (text: string): void => {
      log = (log + text).slice(-16_384);
      const port = /listening on 127\.0\.0\.1:(\d+)/.exec(log)?.[1];
      if (port === undefined) return;
      resolve(port);
      // It says something about each request, which is not read.
      child.stderr.off('data', read).resume();
    };
    child.stderr.setEncoding('utf8').on('data', read);
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`docker-registry ended at once: ${log}`)));
  }).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return { host: `127.0.0.1:${port}`, url: `http://127.0.0.1:${port}`, stop };
}
