/** The body of POST /containers/{id}/update. */
import type { HostConfig } from '../../ports/container.js';
import { invalid } from '../../errors/engine-error.js';
import { object, optional } from './decode.js';
import { resourcesShape, restartPolicy } from './container-create.js';

const body = object({ ...resourcesShape, RestartPolicy: optional(restartPolicy) });

/** The settings that the client wants changed: zero, empty and null mean unchanged. */
export function decodeUpdate(value: unknown): Partial<HostConfig> {
  if (value === undefined || value === null) throw invalid('invalid JSON: got EOF while reading request body');
  const decoded = body.decode(value, '');
  return Object.fromEntries(
    Object.entries(decoded).filter(([, setting]) => setting !== 0 && setting !== '' && setting !== null && !(Array.isArray(setting) && setting.length === 0)),
  ) as Partial<HostConfig>;
}
