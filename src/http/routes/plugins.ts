/** Routes for managed plugins. */
import type { PluginMaker, PullOrder } from '../../actors/plugin/plugin-maker.js';
import type { Plugins } from '../../actors/plugin/plugins.js';
import { invalid, messageOf } from '../../errors/engine-error.js';
import type { ProgressFact } from '../../ports/progress.js';
import { decodeCredentials } from '../../registry/credentials.js';
import { parseFilters } from '../api/filters.js';
import { decodePrivileges, decodeWords, pluginFilter, pluginView } from '../api/plugin-view.js';
import { encodeProgress } from '../api/progress.js';
import type { Exchange, Headers } from '../exchange.js';
import type { ResponseStream } from '../response-stream.js';
import { route, type Route } from '../route.js';

export interface PluginRouteDeps {
  readonly plugins: Plugins;
  readonly maker: PluginMaker;
}

export function pluginRoutes({ plugins, maker }: PluginRouteDeps): Route[] {
  return [
    route('GET', '/plugins', (x) => {
      const isListed = pluginFilter(parseFilters(x.query.text('filters')).allow(['enabled', 'capability']));
      x.sendJson(200, plugins.list().filter(isListed).map(pluginView));
    }),

    route('GET', '/plugins/{name...}/json', (x) => x.sendJson(200, pluginView(plugins.get(x.param('name'))))),

    route('DELETE', '/plugins/{name...}', async (x) => {
      await plugins.remove(x.param('name'), x.query.flag('force'));
      x.sendEmpty(200);
    }),

    ...switchRoutes(plugins),

    route('POST', '/plugins/{name...}/set', async (x) => {
      await plugins.set(x.param('name'), decodeWords(await x.json<unknown>()));
      x.sendEmpty(204);
    }),

    route(
      'GET',
      '/plugins/privileges',
      async (x) => {
        const credentials = decodeCredentials(x.header('x-registry-auth'));
        x.sendJson(200, await maker.privileges(x.query.text('remote'), credentials, x.signal));
      },
      { waitsForOthers: true },
    ),

    route('POST', '/plugins/pull', async (x) => {
      const order = await pullOrder(x);
      const name = maker.nameFor(order.remote, x.query.text('name'));
      await report(x, { 'Docker-Plugin-Name': name }, (say) => maker.pull(name, order, say, x.signal));
    }),

    route('POST', '/plugins/{name...}/upgrade', async (x) => {
      const order = await pullOrder(x);
      maker.requireUpgradable(x.param('name'));
      await report(x, {}, (say) => maker.upgrade(x.param('name'), order, say, x.signal));
    }),

    route('POST', '/plugins/{name...}/push', async (x) => {
      const credentials = decodeCredentials(x.header('x-registry-auth'));
      await report(x, {}, (say) => maker.push(x.param('name'), credentials, say, x.signal));
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

function switchRoutes(plugins: Plugins): Route[] {
  return [
    route(
      'POST',
      '/plugins/{name...}/enable',
      async (x) => {
        const timeoutSeconds = x.query.integer('timeout') ?? 0;
        if (timeoutSeconds < 0) throw invalid('negative value is invalid for timeout', { code: 'QUERY_INTEGER' });
        await plugins.enable(x.param('name'), timeoutSeconds);
        x.sendEmpty(200);
      },
      { waitsForOthers: true },
    ),

    route(
      'POST',
      '/plugins/{name...}/disable',
      async (x) => {
        await plugins.disable(x.param('name'), x.query.flag('force'));
        x.sendEmpty(200);
      },
      { waitsForOthers: true },
    ),
  ];
}

async function pullOrder(x: Exchange): Promise<PullOrder> {
  return {
    remote: x.query.text('remote'),
    credentials: decodeCredentials(x.header('x-registry-auth')),
    granted: decodePrivileges(await x.optionalJson<unknown>()),
  };
}

/** Before the first line a failure is the reply; then it is the last line. */
async function report(
  x: Exchange,
  headers: Headers,
  work: (say: (fact: ProgressFact) => void) => Promise<unknown>,
): Promise<void> {
  let stream: ResponseStream | undefined;
  const say = (fact: ProgressFact): void => {
    stream ??= x.stream(200, { 'Content-Type': 'application/json', ...headers });
    // A client that is behind misses amounts, but no states.
    if (fact.kind !== 'bytes' || isDue()) stream.write(encodeProgress(fact));
  };
  const isDue = pacer();
  try {
    await work(say);
  } catch (error) {
    if (!stream) throw error;
    x.noteFailure();
    say({ kind: 'failed', message: messageOf(error) });
  }
  stream?.end();
}

const REPORT_INTERVAL_MS = 100;

/** Returns a question that is answered by true so often at most. */
function pacer(): () => boolean {
  let last = 0;
  return () => {
    const isDue = Date.now() - last >= REPORT_INTERVAL_MS;
    if (isDue) last = Date.now();
    return isDue;
  };
}
