/** Reloads of the configuration of a running daemon, by request and by signal, and what the daemon says of itself. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Engine } from './engine.js';
import { callJson } from './http.js';
import { waitFor } from './wait.js';

export interface Entry {
  readonly key: string;
  readonly verdict: string;
  readonly before?: string;
  readonly after?: string;
}

export interface Result {
  readonly ok: boolean;
  readonly message: string;
  readonly entries: readonly Entry[];
}

export interface View {
  readonly settings: Readonly<Record<string, { readonly value: unknown; readonly source: string }>>;
  readonly lastReload: (Result & { readonly time: string }) | null;
}

export interface Info {
  readonly Debug: boolean;
  readonly Labels: readonly string[];
  readonly LiveRestoreEnabled: boolean;
  readonly DefaultRuntime: string;
  readonly Runtimes: Readonly<Record<string, unknown>>;
  readonly CDISpecDirs: readonly string[];
  readonly RegistryConfig: { readonly Mirrors: readonly string[] | null };
}

/** Tests do this with the configuration of an engine, which may start later. */
export function reloadsOf(engine: () => Engine) {
  const write = (content: unknown): Promise<void> =>
    writeFile(join(engine().dir, 'daemon.json'), typeof content === 'string' ? content : JSON.stringify(content));
  const view = (): Promise<View> => callJson<View>(engine().socketPath, 'GET', '/engine/config');
  const info = (): Promise<Info> => callJson<Info>(engine().socketPath, 'GET', '/info');

  const request = (query = ''): Promise<Result> =>
    callJson<Result>(engine().socketPath, 'POST', `/engine/config/reload${query}`, {}, 200, 400);

  const reload = async (content: unknown): Promise<Result> => {
    await write(content);
    return request();
  };

  /** As `reload`, by the signal. */
  const hangUp = async (content: unknown): Promise<NonNullable<View['lastReload']>> => {
    const before = (await view()).lastReload?.time;
    await write(content);
    process.kill(engine().pid, 'SIGHUP');
    return waitFor('the reload', async () => {
      const { lastReload } = await view();
      return lastReload !== null && lastReload.time !== before && lastReload;
    });
  };
  return { write, view, info, request, reload, hangUp };
}
