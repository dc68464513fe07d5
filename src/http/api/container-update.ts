/** The body of POST /containers/{id}/update. */
import type { HostConfig } from '../../ports/container.js';
import { invalid } from '../../errors/engine-error.js';
import { integer, object, optional, string } from './decode.js';
import { resourcesShape } from './container-create.js';

const body = object({ ...resourcesShape, RestartPolicy: optional(object({ Name: string(), MaximumRetryCount: integer() })) });

/** The settings that the client wants changed: zero, empty and null mean unchanged. */
export function decodeUpdate(value: unknown): Partial<HostConfig> {
  if (value === undefined || value === null) throw invalid('invalid JSON: got EOF while reading request body');
  const { RestartPolicy, ...limits } = body.decode(value, '');
  // The known clients send a policy without a name when it is to stay.
  const decoded = { ...limits, RestartPolicy: RestartPolicy?.Name ? RestartPolicy : null };
  return Object.fromEntries(
    Object.entries(decoded).filter(([, setting]) => setting !== 0 && setting !== '' && setting !== null && !(Array.isArray(setting) && setting.length === 0)),
  ) as Partial<HostConfig>;
}
