/** Requests as steps, where somebody has subscribed to these. */
import type { RequestObserver } from '../http/request-observer.js';
import { steps, type Step } from '../text/steps.js';

/** Returns an observer that tells `counted` everything and publishes each request as a step. */
export function requestsInSteps(counted: RequestObserver): RequestObserver {
  if (!steps.hasSubscribers) return counted;
  return {
    answered(method, pattern, status, seconds, isWhole) {
      const endedMs = performance.now();
      const begunMs = endedMs - seconds * 1000;
      steps.publish({ name: `http.${method} ${pattern}`, begunMs, endedMs } satisfies Step);
      counted.answered(method, pattern, status, seconds, isWhole);
    },
    refused: (status) => counted.refused(status),
  };
}
