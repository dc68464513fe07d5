/** `/_ping` is the first request of every client. */
import type { Exchange, Headers } from '../exchange.js';
import { route, type Route } from '../route.js';

/** Has clients build with BuildKit; `1` would be the classic builder. */
const BUILDER_VERSION = '2';

export interface PingOptions {
  /** Returns the state of the cluster, such as `inactive`. */
  swarmState(): string;
}

export function pingRoutes(options: PingOptions): Route[] {
  let headers: Headers = {};
  let renderedState: string | undefined;
  const currentHeaders = (): Headers => {
    const state = options.swarmState();
    if (state !== renderedState) {
      renderedState = state;
      headers = Object.freeze({
        'Builder-Version': BUILDER_VERSION,
        'Cache-Control': 'no-cache, no-store, must-revalidate',
        Pragma: 'no-cache',
        Swarm: state,
      });
    }
    return headers;
  };
  const ping = (x: Exchange): void => x.sendText(200, x.method === 'HEAD' ? '' : 'OK', currentHeaders());
  return [route('GET', '/_ping', ping), route('HEAD', '/_ping', ping)];
}
