/** Tests leave no containers to the tests behind them, also when they fail. */
import assert from 'node:assert/strict';
import type { Engine } from './engine.js';
import { call, callJson } from './http.js';
import { waitFor } from './wait.js';

/**
 * Removes every container of an engine, with its anonymous volumes. One that removes itself may be gone meanwhile, or
 * is still on its way.
 */
export async function removeContainers(engine: Engine): Promise<void> {
  const list = (): Promise<{ Id: string }[]> => callJson(engine.socketPath, 'GET', '/containers/json?all=1');
  for (const { Id } of await list()) {
    const { status, text } = await call(engine.socketPath, 'DELETE', `/containers/${Id}?force=1&v=1`);
    const isRemoved = status === 204 || status === 404;
    assert.ok(isRemoved || (status === 409 && text.includes('is already in progress')), text);
  }
  await waitFor('the containers to be gone', async () => (await list()).length === 0);
}
