/** Load from wrk, which keeps its connections. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const SECONDS = 3;
const run = promisify(execFile);

export interface Load {
  readonly requestsPerSecond: number;
  /** 99th percentile of the time to a reply, in ms. */
  readonly p99Ms: number;
}

const UNITS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1000 };

/** Throws when any request failed. */
export async function load(url: string, connections: number): Promise<Load> {
  const { stdout } = await run('wrk', [
    '-t1',
    `-c${connections}`,
    `-d${SECONDS}s`,
    '--latency',
    '--timeout',
    '10s',
    url,
  ]);
  const rate = /Requests\/sec: +([\d.]+)/.exec(stdout)?.[1];
  const [, p99, unit = ''] = /99% +([\d.]+)(us|ms|s)\b/.exec(stdout) ?? [];
  if (rate === undefined || p99 === undefined || /Non-2xx|Socket errors/.test(stdout))
    throw new Error(`wrk on ${url}: ${stdout}`);
  return { requestsPerSecond: Number(rate), p99Ms: Number(p99) * (UNITS[unit] ?? Number.NaN) };
}
