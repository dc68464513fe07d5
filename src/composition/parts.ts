/** Makes every part of the daemon, each after those that it needs. Nothing runs yet. */
import { ContainerViews } from '../actors/container/views.js';
import { ApiListeners } from '../api-listeners.js';
import type { LiveConfig, ReloadResult } from '../config/live-config.js';
import { messageOf } from '../errors/engine-error.js';
import { AuditLog } from '../http/audit.js';
import { createFront, type Front } from '../http/front.js';
import type { Route } from '../http/route.js';
import type { ImageGarbage } from '../images/garbage.js';
import { AuthorizationPlugins } from '../plugins/authorization-plugins.js';
import type { Logger } from '../ports/logger.js';
import type { ServiceManager } from '../service-manager.js';
import { PRODUCT_VERSION } from '../version.js';
import { type Base, makeBase } from './base.js';
import { composeContainers, type Containers } from './containers.js';
import { openDrivers, type Drivers } from './drivers.js';
import { type Builder, composeBuilder } from './builder.js';
import { composePlugins, type PluginParts } from './plugins.js';
import type { Roots } from './roots.js';
import { requestsInSteps } from './request-steps.js';
import { requestTracer } from '../text/steps.js';
import { tracedRoutes } from '../http/traced-routes.js';
import { startTracing, type Tracing } from './tracing.js';
import { ThreadTerminator } from '../workers/tls-terminator.js';
import { composeRoutes } from './routes.js';
import { composeTransfers, type Transfers } from './transfers.js';

export interface EngineParts {
  readonly base: Base;
  readonly drivers: Drivers;
  readonly lives: Containers;
  readonly transfers: Transfers;
  readonly builder: Builder;
  readonly plugins: PluginParts;
  readonly garbage: ImageGarbage;
  readonly authorization: AuthorizationPlugins;
  readonly front: Front;
  readonly tracing: Tracing;
  readonly listeners: ApiListeners;
}

/** Makes the parts. @throws EngineError for what is found to be wrong before anything is started. */
export async function composeParts(
  live: LiveConfig,
  roots: Roots,
  manager: ServiceManager,
  log: Logger,
): Promise<EngineParts> {
  const listeners = new ApiListeners(live, manager, log);
  const tracing = await startTracing(live.fixed.otlpEndpoint, log);
  const base = await makeBase(live, roots, manager.store, log);
  const views = new ContainerViews();
  const drivers = await openDrivers(base, () => views.list());
  const lives = await composeContainers(base, drivers, views);
  const transfers = composeTransfers(base, drivers);
  const builder = composeBuilder(base, drivers, lives, transfers);
  const plugins = composePlugins(base, drivers, lives, transfers);
  const { routes, garbage } = composeRoutes(
    base,
    drivers,
    { ...lives, builder, plugins },
    transfers,
    () => listeners.warnings,
  );
  const authorization = new AuthorizationPlugins({ places: drivers.pluginPlaces });
  const front = composeFront(base, drivers, { routes, authorization });
  followReloads(base, drivers, authorization);
  return { base, drivers, lives, transfers, builder, plugins, garbage, authorization, front, tracing, listeners };
}

function composeFront(
  { live, log, keptSockets }: Base,
  { metrics, keptReplies, promptPool }: Drivers,
  { routes, authorization }: Pick<EngineParts, 'authorization'> & { readonly routes: readonly Route[] },
): Front {
  const tracer = requestTracer();
  return createFront({
    authorizer: authorization,
    audit: new AuditLog(log, () => live.current.features['audit'] === true),
    product: { version: PRODUCT_VERSION, experimental: live.fixed.experimental },
    logger: log,
    keptReplies,
    keptSockets,
    observer: requestsInSteps(metrics.requests),
    terminateTls: (rules, serve) => new ThreadTerminator(rules, log, serve),
    jsonParser: (text) => promptPool.run('parse-json', text, { transferList: [text.bytes.buffer] }),
    routes: tracer === undefined ? routes : tracedRoutes(routes, tracer),
  });
}

/** After a reload, applies the new list of plugins and emits an event with the changes. */
function followReloads(
  { live, log, settings, host }: Base,
  { emit }: Drivers,
  authorization: AuthorizationPlugins,
): void {
  live.onReload((result) => {
    authorization
      .use(live.current.authorizationPlugins)
      .catch((error: unknown) => log.error({}, `${messageOf(error)}; it denies every request until it answers`));
    if (result.ok)
      emit('daemon', 'reload', settings.shown().id, {
        name: host.hostname,
        ...reloadOutcome(result),
        ...live.reloadableSettings(),
      });
  });
}

/** Groups the keys of the configuration by what the reload did to them, for its event. */
function reloadOutcome({ entries }: ReloadResult): Record<string, string> {
  const keys = (...verdicts: readonly string[]): string =>
    entries.flatMap(({ key, verdict }) => (verdicts.includes(verdict) ? [key] : [])).join(',');
  return Object.fromEntries(
    Object.entries({
      applied: keys('applied'),
      removed: keys('removed'),
      'needs-restart': keys('needs-restart'),
    }).filter(([, value]) => value !== ''),
  );
}
