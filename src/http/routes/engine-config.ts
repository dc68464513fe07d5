/**
 * `/engine/config`: the configuration in effect, where each value came from, and its reload. Not part of the known
 * Engine API.
 */
import type { LiveConfigView, ReloadResult } from '../../config/live-config.js';
import { configurationJson, reloadJson } from '../api/configuration.js';
import { route, type Route } from '../route.js';

export interface ConfigRouteDeps {
  /** The effective configuration without secrets. */
  view(): LiveConfigView;
  reload(options: { readonly dryRun: boolean }): Promise<ReloadResult>;
}

export function engineConfigRoutes(config: ConfigRouteDeps): Route[] {
  return [
    route('GET', '/engine/config', (x) => x.sendJson(200, configurationJson(config.view()))),
    route('POST', '/engine/config/reload', async (x) => {
      const result = await config.reload({ dryRun: x.query.flag('dryRun') });
      x.sendJson(result.ok ? 200 : 400, reloadJson(result));
    }),
  ];
}
