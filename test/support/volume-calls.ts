/** Tests of volumes do this with an engine, which may start later. */
import { readFileSync } from 'node:fs';
import type { CliResult } from './cli.js';
import { attempt, engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { call, callJson, type Reply } from './http.js';

export interface VolumeJson {
  readonly Name: string;
  readonly Mountpoint: string;
  readonly Labels: Record<string, string> | null;
  readonly Options: Record<string, string> | null;
}

export function volumeCalls(engine: () => Engine) {
  const ok = (...args: string[]): Promise<string> => engineOk(engine(), args);
  const cli = (...args: string[]): Promise<CliResult> => attempt(engine(), args);
  const create = (json: unknown): Promise<Reply> => call(engine().socketPath, 'POST', '/volumes/create', { json });
  const listed = async (filters?: unknown, version = ''): Promise<string[]> => {
    const query = filters === undefined ? '' : `?filters=${encodeURIComponent(JSON.stringify(filters))}`;
    const { Volumes } = await callJson<{ Volumes: VolumeJson[] }>(
      engine().socketPath,
      'GET',
      `${version}/volumes${query}`,
    );
    return Volumes.map(({ Name }) => Name).toSorted();
  };
  const inspect = (name: string): Promise<VolumeJson> => callJson(engine().socketPath, 'GET', `/volumes/${name}`);
  const isMounted = (path: string): boolean =>
    readFileSync(`/proc/${engine().pid}/mounts`, 'utf8').includes(` ${path} `);
  return { ok, cli, create, listed, inspect, isMounted };
}
