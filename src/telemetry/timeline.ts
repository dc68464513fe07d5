/**
 * Writes when each step of the daemon's work began and ended, for pictures of where time goes (docs/performance.md).
 * The lines have names of steps only: no paths, settings or contents of requests.
 */
import { createWriteStream } from 'node:fs';
import { steps, type Step } from '../text/steps.js';

/** Names the file. It is no option, because nobody needs it who runs the daemon. */
const VARIABLE = 'ENGINED_TIMELINE';

/**
 * Appends each step to the file that the environment names, as a line `{"name", "begunMs", "endedMs"}` with times since
 * 1970; does nothing without such a file. Steps count from this call on.
 */
export function openTimeline(environment: NodeJS.ProcessEnv): void {
  const path = environment[VARIABLE];
  if (path === undefined || path === '') return;
  const file = createWriteStream(path, { flags: 'a', mode: 0o600 });
  const { timeOrigin } = performance;
  steps.subscribe((message) => {
    const { name, begunMs, endedMs } = message as Step;
    file.write(`${JSON.stringify({ name, begunMs: timeOrigin + begunMs, endedMs: timeOrigin + endedMs })}\n`);
  });
}
