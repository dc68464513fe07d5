/** `/metrics`, for the listener of the metrics and beside the other routes. */
import { route, type Route } from '../route.js';

export interface MetricsSource {
  read(): Promise<{ readonly contentType: string; readonly text: string }>;
}

export function metricsRoutes(source: MetricsSource): Route[] {
  return [
    route('GET', '/metrics', async (x) => {
      const { contentType, text } = await source.read();
      x.sendRendered(200, contentType, text);
    }),
  ];
}
