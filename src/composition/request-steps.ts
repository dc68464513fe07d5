/** Requests as steps, where somebody has subscribed to these. */
import type { RequestObserver } from '../http/request-observer.js';
import { steps, type Step } from '../text/steps.js';

/** Returns an observer that tells `counted` everything and publishes each request as a step. */
export function requestsInSteps(counted: RequestObserver): RequestObserver {
  if (!steps.hasSubscribers) return counted;
  return {
    answered(method, pattern, status, startedMs, isWhole) {
      const name = `http.${method} ${pattern}`;
      steps.publish({ name, begunMs: startedMs, endedMs: performance.now() } satisfies Step);
      counted.answered(method, pattern, status, startedMs, isWhole);
    },
    refused: (status) => counted.refused(status),
  };
}
