/** `HealthConfig` in the bodies of a creation and of a commit. Durations are in nanoseconds. */
import { integer, list, object, optional, string, unlessZero } from './decode.js';

export const healthcheck = object({
  Test: optional(list(string())),
  Interval: unlessZero(integer()),
  Timeout: unlessZero(integer()),
  StartPeriod: unlessZero(integer()),
  StartInterval: unlessZero(integer()),
  Retries: unlessZero(integer()),
});
