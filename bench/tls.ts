/** Requests per second through TLS, over 32 keep-alive connections. */
import type { Measure } from './measure.js';
import { load } from './wrk.js';

export const tls: Measure = {
  name: 'tls',
  metrics: [{ name: '_ping over TLS', unit: 'req/s', target: 1, moreIsBetter: true }],
  transport: 'tls',
  prepare:
    async (_engine, { tcpUrl }) =>
    async () => ({ '_ping over TLS': (await load(`${tcpUrl}/_ping`, 32)).requestsPerSecond }),
};
