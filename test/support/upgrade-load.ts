/**
 * Clients go on while a daemon is replaced again and again, and must not have missed anything in the end: requests,
 * probes of published ports, volumes whose events are followed, and lines of a log. Two containers take part: `web`,
 * which serves the ports, and `counter`, with a terminal, which counts into its log.
 */
import assert from 'node:assert/strict';
import { followLog, followVolumes } from './steady-followers.js';
import { probe, repeat, requests, type Misses, type SteadyLoad } from './steady-load.js';

/** A server on port 80. `/cgi-bin/slow?SECONDS` takes so long, and makes a file of that name in `/slow` at first. */
export const WEB = [
  'mkdir -p /www/cgi-bin /slow; echo served > /www/index.html',
  `printf %s '#!/bin/sh\n: > /slow/$QUERY_STRING\nsleep $QUERY_STRING\necho\necho served\n' > /www/cgi-bin/slow`,
  'chmod +x /www/cgi-bin/slow; exec httpd -f -p 80 -h /www',
].join('; ');

/** Counts until there is a file `/stop`. */
export const COUNTER = 'i=0; while [ ! -e /stop ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo end';

export interface UpgradeLoadOptions {
  readonly socketPath: string;
  /** Ports of `web` on 127.0.0.1, which are probed in turn. */
  readonly ports: readonly number[];
  readonly probeMs: number;
  readonly requestsPerSecond: number;
  readonly volumeMs: number;
  createVolume(name: string): Promise<unknown>;
  /** More that goes on meanwhile, by what it is called. */
  readonly more?: Readonly<Record<string, SteadyLoad>>;
  /**
   * So many of one kind wait for an answer at most; further ones are left out. For a machine that is too slow: there
   * `web` may wait for a daemon longer than the minute that it gives a client for its request, and says so (408).
   */
  readonly mostOpen?: number;
}

export interface UpgradeLoad {
  /** Ends all clients, and asserts that nothing was missed. */
  end(counter: CounterCalls): Promise<void>;
  /** Ends all clients after a failure, so that nothing of theirs comes later. */
  abandon(): Promise<void>;
}

/** The end of `counter`. */
export interface CounterCalls {
  /** Makes its file `/stop`. */
  stop(): Promise<unknown>;
  /** Returns its log. */
  logs(): Promise<string>;
}

export function startUpgradeLoad(options: UpgradeLoadOptions): UpgradeLoad {
  const { socketPath, ports, mostOpen } = options;
  let [probed, volumes, late] = [0, 0, 0];
  const probeNext = async (): Promise<void> => {
    try {
      await probe('127.0.0.1', ports[probed++ % ports.length] ?? 0, 'served');
    } catch (error) {
      if (mostOpen === undefined || !String(error).includes('HTTP/1.1 408')) throw error;
      late++;
    }
  };
  const events = followVolumes(socketPath, Date.now() / 1000 - 1);
  const log = followLog(socketPath, 'counter');
  const loads: Readonly<Record<string, SteadyLoad>> = {
    requests: requests(socketPath, '/containers/json', options.requestsPerSecond, mostOpen),
    probes: repeat(options.probeMs, probeNext, mostOpen),
    volumes: repeat(options.volumeMs, () => options.createVolume(`v${volumes++}`).then(() => undefined), mostOpen),
    ...options.more,
  };
  return {
    end: async (counter) => {
      for (const [what, load] of Object.entries(loads)) assertNoneMissed(what, await load.end());
      if (late > 0) console.log(`${late} of the probes were answered that they were late`);
      await options.createVolume('last');
      const created = await events.until('last');
      assert.deepEqual(created.toSorted(), [...Array.from({ length: volumes }, (_, i) => `v${i}`), 'last'].toSorted());
      await counter.stop();
      const followed = await log.until('end');
      assertWhole(followed);
      assertWhole((await counter.logs()).trimEnd().replaceAll('\r', '').split('\n'));
      const returns = `returns of the followers: ${events.returns()}, ${log.returns()}`;
      console.log(`${created.length} events and ${followed.length} lines, each once; ${returns}`);
    },
    abandon: async () => {
      for (const follower of [events, log]) follower.end();
      for (const load of Object.values(loads)) await load.end();
    },
  };
}

function assertWhole(lines: readonly string[]): void {
  // An assertion about all of tens of thousands of lines would look for minutes for a way to tell them apart.
  const at = lines.findIndex((line, i) => line !== (i === lines.length - 1 ? 'end' : `line ${i}`));
  assert.equal(at, -1, `line ${at} of ${lines.length}: ${JSON.stringify(lines.slice(at, at + 3))}`);
}

/** Says how many were made and how fast, too. */
export function assertNoneMissed(what: string, { made, failures, longestMs, perSecond }: Misses): void {
  assert.deepEqual(failures.slice(0, 5), [], `${failures.length} of ${made} ${what} failed`);
  const rate = `${made} made, ${perSecond.toFixed(1)} a second`;
  console.log(`${what}: ${rate}, ${failures.length} failed, the longest took ${Math.round(longestMs)} ms`);
}
