/** Tests leave no containers to the tests behind them, also when they fail. */
import type { Engine } from './engine.js';
import { callJson } from './http.js';

/** Removes every container of an engine, with its anonymous volumes. One that removes itself may be gone meanwhile. */
export async function removeContainers(engine: Engine): Promise<void> {
  const containers = await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1');
  for (const { Id } of containers)
    await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1&v=1`, {}, 204, 404);
}
