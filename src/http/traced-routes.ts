/** Routes whose requests are traced: each is the root of what its handler leads to. */
import type { Tracer } from '../text/steps.js';
import type { Route } from './route.js';

export function tracedRoutes(routes: readonly Route[], tracer: Tracer): Route[] {
  return routes.map((route) => ({
    ...route,
    handler(x) {
      const traced = tracer.request(route.method, route.pattern, x.header('traceparent'));
      x.onClose(() => traced.end(x.status));
      return traced.run(() => route.handler(x));
    },
  }));
}
