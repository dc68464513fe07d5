/** Begins to trace requests if there is a collector. Otherwise nothing of it is loaded. */
import type { Logger } from '../ports/logger.js';
import { traceSteps } from '../text/steps.js';
import { PRODUCT_VERSION } from '../version.js';

export interface Tracing {
  close(): Promise<void>;
}

/** @param endpoint the base URL of the collector, or ''. It is called before the parts are made that are traced. */
export async function startTracing(endpoint: string, log: Logger): Promise<Tracing> {
  if (endpoint === '') return { close: async () => undefined };
  const { openTraces } = await import('../telemetry/traces.js');
  const traces = openTraces({ endpoint, version: PRODUCT_VERSION, log });
  traceSteps(traces);
  return {
    async close() {
      traceSteps(undefined);
      await traces.close();
    },
  };
}
