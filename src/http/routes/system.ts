/** `version` and `info` tell what the daemon says about itself. */
import type { SystemService } from '../../actors/engine/system.js';
import { infoJson } from '../api/info.js';
import { versionJson } from '../api/version.js';
import { route, type Route } from '../route.js';

export function systemRoutes(system: SystemService): Route[] {
  return [
    route('GET', '/version', async (x) => x.sendJson(200, versionJson(await system.version()))),

    route('GET', '/info', async (x) => {
      const features = x.atLeast(1, 44) ? await system.runtimeFeatures() : new Map<string, string>();
      x.sendJson(
        200,
        infoJson(await system.info(), features, (major, minor) => x.atLeast(major, minor)),
      );
    }),
  ];
}
