/**
 * For the tests of copies into and out of containers: an engine for the file, a scratch directory and the few calls
 * they make.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CliResult } from './cli.js';
import { attempt } from './engine-commands.js';
import { FileEngine } from './file-engine.js';
import { call, type Reply } from './http.js';
import { waitFor } from './wait.js';

export const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';

/** The members of the header with a path's stat. */
export interface Stat {
  readonly name: string;
  readonly size: number;
  readonly mode: number;
  readonly mtime: string;
  readonly linkTarget: string;
}

export class Copies extends FileEngine {
  readonly temp = mkdtempSync(join(tmpdir(), 'archive-test-'));

  constructor() {
    super();
    this.cleanup.add(async () => rmSync(this.temp, { recursive: true, force: true }));
  }

  cli(...args: string[]): Promise<CliResult> {
    return attempt(this.engine, args);
  }

  url(container: string, path: string, more = ''): string {
    return `/containers/${container}/archive?path=${encodeURIComponent(path)}${more}`;
  }

  put(container: string, path: string, body: Buffer, more = ''): Promise<Reply> {
    return call(this.engine.socketPath, 'PUT', this.url(container, path, more), {
      body,
      headers: { 'Content-Type': 'application/x-tar' },
    });
  }

  async stat(container: string, path: string): Promise<Stat> {
    const reply = await call(this.engine.socketPath, 'HEAD', this.url(container, path));
    assert.equal(reply.status, 200, `${path}: ${reply.status}`);
    return decodeStat(reply.headers['x-docker-container-path-stat']);
  }

  /** Names of a tar, and with them where links lead. */
  names(tar: Buffer): string[] {
    const file = join(this.temp, 'listed.tar');
    writeFileSync(file, tar);
    return execFileSync('tar', ['-tPf', file], { encoding: 'utf8' }).split('\n').filter(Boolean);
  }

  /** An empty directory. */
  scratch(name: string): string {
    const dir = join(this.temp, name);
    mkdirSync(dir, { recursive: true });
    return dir;
  }

  /** Starts a container, and resolves when the script has done its work in it. */
  async running(name: string, script: string, ...options: string[]): Promise<void> {
    await this.ok(
      'run',
      '-d',
      '--name',
      name,
      ...options,
      this.image,
      'sh',
      '-c',
      `${script}; touch /ready; exec sleep 1000`,
    );
    await waitFor(
      `${name} to be ready`,
      async () => (await call(this.engine.socketPath, 'HEAD', this.url(name, '/ready'))).status === 200,
    );
  }
}

export function decodeStat(header: unknown): Stat {
  return JSON.parse(Buffer.from(String(header), 'base64').toString()) as Stat;
}
