/** The outcomes of somebody else's tests against one engine, as scripts/side-by-side.mjs reads them. */
import type { Engine } from '../support/engine.js';
import { callJson } from '../support/http.js';

/** The end of one test. `message` says how it failed. */
export interface Outcome {
  /** Its parts, from the largest group to the test itself, with ` › ` between them. */
  readonly name: string;
  /** `passed`, `failed` or `skipped`. */
  readonly state: string;
  readonly message?: string;
}

/** The engine and the programs under it, as the heading of the table names them. */
export async function versions(engine: Engine): Promise<string> {
  const { Components } = await callJson<{ Components: { Name: string; Version: string }[] }>(
    engine.socketPath,
    'GET',
    '/version',
  );
  const found = new Map(Components.map(({ Name, Version }) => [Name, Version]));
  return `${engine.name} ${found.get('Engine')}, containerd ${found.get('containerd')}, runc ${found.get('runc')}`;
}
