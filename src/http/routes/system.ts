/** version, info and the login check: what the daemon says about itself. */
import type { SystemService } from '../../actors/engine/system.js';
import { route, type Route } from '../route.js';

export function systemRoutes(system: SystemService): Route[] {
  return [
    route('GET', '/version', async (x) => x.sendJson(200, await system.version())),
    route('GET', '/info', async (x) => x.sendJson(200, await system.info((major, minor) => x.atLeast(major, minor)))),
  ];
}
