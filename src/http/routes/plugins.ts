/** Routes for managed plugins. */
import type { PluginMaker } from '../../actors/plugin/plugin-maker.js';
import type { Plugins } from '../../actors/plugin/plugins.js';
import { invalid } from '../../errors/engine-error.js';
import { parseFilters } from '../api/filters.js';
import { decodeWords, isListed, pluginView } from '../api/plugin-view.js';
import { route, type Route } from '../route.js';

export interface PluginRouteDeps {
  readonly plugins: Plugins;
  readonly maker: PluginMaker;
}

export function pluginRoutes({ plugins, maker }: PluginRouteDeps): Route[] {
  return [
    route('GET', '/plugins', (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['enabled', 'capability']);
      x.sendJson(
        200,
        plugins
          .list()
          .filter((record) => isListed(filters, record))
          .map(pluginView),
      );
    }),

    route('GET', '/plugins/{name...}/json', (x) => x.sendJson(200, pluginView(plugins.get(x.param('name'))))),

    route('DELETE', '/plugins/{name...}', async (x) => {
      await plugins.remove(x.param('name'), x.query.flag('force'));
      x.sendEmpty(200);
    }),

    route('POST', '/plugins/{name...}/enable', async (x) => {
      const timeoutSeconds = x.query.integer('timeout') ?? 0;
      if (timeoutSeconds < 0) throw invalid('negative value is invalid for timeout', { code: 'QUERY_INTEGER' });
      await plugins.enable(x.param('name'), timeoutSeconds);
      x.sendEmpty(200);
    }),

    route('POST', '/plugins/{name...}/disable', async (x) => {
      await plugins.disable(x.param('name'), x.query.flag('force'));
      x.sendEmpty(200);
    }),

    route('POST', '/plugins/{name...}/set', async (x) => {
      await plugins.set(x.param('name'), decodeWords(await x.json<unknown>()));
      x.sendEmpty(204);
    }),

    route(
      'POST',
      '/plugins/create',
      async (x) => {
        await maker.create(x.query.text('name'), x.bodySource());
        x.sendEmpty(204);
      },
      { body: 'archive' },
    ),
  ];
}
