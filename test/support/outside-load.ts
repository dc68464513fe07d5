/**
 * The part of the load of an upgrade that comes from outside of the upgraded machine. Run as a program, `node
 * outside-load.js HOST:PORT` waits there for a machine to start it and to ask how it went: scripts/test-vm.mjs runs it
 * at the other end of the machine's link, because the clients would take most of the machine's processor otherwise.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { callJson } from './http.js';
import { probe, repeat, requests, type Misses, type SteadyLoad } from './steady-load.js';

export interface OutsideLoadOptions {
  /** The address of the machine that is asked and probed. */
  readonly address: string;
  /** The port of its daemon. */
  readonly apiPort: number;
  readonly requestsPerSecond: number;
  /** Published ports, which are probed in turn. */
  readonly ports: readonly number[];
  readonly probeMs: number;
}

/** More than wait while no daemon serves. Further ones are left out, so that a machine that is too slow catches up. */
const MOST_OPEN = 4000;

/** Has the program at the other end begin. @param control is where it waits, as `tcp://HOST:PORT`. */
export async function startOutsideLoad(
  control: string,
  options: OutsideLoadOptions,
): Promise<Readonly<Record<string, SteadyLoad>>> {
  const names = await callJson<string[]>(control, 'POST', '/', { json: options });
  const end = (name: string): Promise<Misses> => callJson(control, 'DELETE', `/${encodeURIComponent(name)}`);
  return Object.fromEntries(names.map((name) => [name, { end: () => end(name) }]));
}

function start({ address, apiPort, ports, probeMs, requestsPerSecond }: OutsideLoadOptions): Map<string, SteadyLoad> {
  const api = `tcp://${address}:${apiPort}`;
  let probed = 0;
  const probeNext = (): Promise<void> => probe(address, ports[probed++ % ports.length] ?? 0, 'served');
  return new Map([
    ['requests from outside', requests(api, '/containers/json', requestsPerSecond, MOST_OPEN)],
    ['probes from outside', repeat(probeMs, probeNext, MOST_OPEN)],
  ]);
}

async function serve(host: string, port: number): Promise<void> {
  let loads = new Map<string, SteadyLoad>();
  // The end of a load may take long.
  const server = createServer({ requestTimeout: 0, headersTimeout: 0 }, (request, response) => {
    const reply = async (): Promise<unknown> => {
      if (request.method === 'DELETE') return loads.get(decodeURIComponent(request.url?.slice(1) ?? ''))?.end();
      loads = start((await json(request)) as OutsideLoadOptions);
      return [...loads.keys()];
    };
    reply().then(
      (value) => void response.end(JSON.stringify(value)),
      (error: unknown) => void response.writeHead(500).end(String(error)),
    );
  });
  await once(server.listen({ host, port }), 'listening');
}

if (process.argv[1] === import.meta.filename) {
  const [host = '', port] = (process.argv[2] ?? '').split(':');
  await serve(host, Number(port));
}
