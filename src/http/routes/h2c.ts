/** `Upgrade: h2c`: connections on which a client speaks HTTP/2 after the upgrade, as builders do. */
import type { Socket } from 'node:net';
import { internal } from '../../errors/engine-error.js';
import type { Exchange } from '../exchange.js';
import { route, type Route } from '../route.js';

/** Serves a connection from its first byte after the 101; owns the socket, which is paused. */
export type H2cHandler = (socket: Socket, x: Exchange) => void;

/** Those that are there. Without a handler the path is unknown, as it is to an engine that has no builder. */
export function h2cRoutes(handlers: Readonly<Record<string, H2cHandler>>): Route[] {
  return Object.entries(handlers).map(([path, handler]) => route('POST', path, (x) => serve(x, handler), { hijack: 'after-head' }));
}

async function serve(x: Exchange, handler: H2cHandler): Promise<void> {
  const protocol = x.header('upgrade');
  if (protocol === undefined) throw internal('no upgrade proto in request', { code: 'UPGRADE' });
  if (protocol !== 'h2c') throw internal(`protocol ${protocol} not supported`, { code: 'UPGRADE' });
  handler(await x.upgrade('h2c'), x);
}
