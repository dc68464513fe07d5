/**
 * `/engine/config`: the configuration in effect, where each value came from, and its reload. Not part of the known
 * Engine API.
 */
import { route, type Route } from '../route.js';

export interface ConfigRouteDeps {
  /** The effective configuration without secrets, ready to be sent. */
  view(): unknown;
  reload(options: { readonly dryRun: boolean }): { readonly ok: boolean };
}

export function engineConfigRoutes(config: ConfigRouteDeps): Route[] {
  return [
    route('GET', '/engine/config', (x) => x.sendJson(200, config.view())),
    route('POST', '/engine/config/reload', (x) => {
      const result = config.reload({ dryRun: x.query.flag('dryRun') });
      x.sendJson(result.ok ? 200 : 400, result);
    }),
  ];
}
