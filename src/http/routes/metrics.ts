/** `/metrics`, for the listener of the metrics only. */
import { route, type Route } from '../route.js';

export interface MetricsSource {
  readonly contentType: string;
  text(): Promise<string>;
}

export function metricsRoutes(source: MetricsSource): Route[] {
  return [route('GET', '/metrics', async (x) => x.sendRendered(200, source.contentType, await source.text()))];
}
