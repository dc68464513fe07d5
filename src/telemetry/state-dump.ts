/**
 * Writes the state of the running daemon to a file when an operator asks for it, for support. Only root can read the
 * file. It holds numbers, names and states. It holds no settings, no environment, and no query or body of a request,
 * because secrets live there.
 */
import { readdir, readlink, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';
import type { Logger } from '../ports/logger.js';
import { replaceFile } from '../sys/files/durable-file.js';

export interface StateDumpOptions {
  readonly dir: string;
  /** Which build of the daemon runs. */
  readonly build: object;
  readonly log: Logger;
  /** The daemon's parts describe themselves; they are asked at each dump. */
  parts(): Readonly<Record<string, unknown>>;
  /** The last lines of the log. */
  logLines(): readonly string[];
}

const PREFIX = 'state-';
/** Older files are removed, because repeated signals must not fill the disk. */
const KEPT = 10;
/** The event loop is watched this long. */
const OBSERVATION_MS = 500;
const RESOLUTION_MS = 10;
const NANOSECONDS_PER_MS = 1e6;

export class StateDump {
  readonly #options: StateDumpOptions;
  #isRunning = false;
  #isWantedAgain = false;

  constructor(options: StateDumpOptions) {
    this.#options = options;
  }

  /** Writes a file in the background. Requests that come meanwhile are answered by one further file. */
  request(): void {
    if (this.#isRunning) {
      this.#isWantedAgain = true;
      return;
    }
    this.#isRunning = true;
    void this.#write().finally(() => {
      this.#isRunning = false;
      if (!this.#isWantedAgain) return;
      this.#isWantedAgain = false;
      this.request();
    });
  }

  async #write(): Promise<void> {
    const { dir, log } = this.#options;
    try {
      const path = join(dir, `${PREFIX}${new Date().toISOString().replaceAll(':', '-')}.json`);
      await replaceFile(path, `${JSON.stringify(await this.#collect(), undefined, 1)}\n`);
      log.info({ path }, 'SIGUSR1: the state of the daemon was written');
      await this.#removeOld();
    } catch (error) {
      log.error({ err: error }, 'SIGUSR1: the state of the daemon cannot be written');
    }
  }

  async #collect(): Promise<Record<string, unknown>> {
    // The parts are asked first, because their state may change during the rest.
    const state = this.#options.parts();
    return {
      time: new Date().toISOString(),
      build: this.#options.build,
      node: process.version,
      pid: process.pid,
      uptimeSeconds: process.uptime(),
      ...state,
      resources: counted(process.getActiveResourcesInfo()),
      descriptors: await descriptors(),
      memory: process.memoryUsage(),
      heap: getHeapStatistics(),
      heapSpaces: getHeapSpaceStatistics(),
      usage: process.resourceUsage(),
      eventLoop: await eventLoop(),
      log: this.#options.logLines(),
    };
  }

  async #removeOld(): Promise<void> {
    const { dir } = this.#options;
    const names = (await readdir(dir)).filter((name) => name.startsWith(PREFIX)).sort();
    for (const name of names.slice(0, -KEPT)) await rm(join(dir, name), { force: true });
  }
}

/** Counts the resources that keep the event loop busy, such as timers and sockets, by kind. */
function counted(kinds: readonly string[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return Object.fromEntries(counts);
}

async function descriptors(): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const fd of await readdir('/proc/self/fd')) {
    // A descriptor may be closed meanwhile, such as that of the directory that was just read.
    found[fd] = await readlink(join('/proc/self/fd', fd)).catch(() => 'closed');
  }
  return found;
}

/** Measures how late the event loop is now, in milliseconds, and how busy it has been since the start. */
async function eventLoop(): Promise<Record<string, number>> {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  await sleep(OBSERVATION_MS);
  delay.disable();
  const ms = (nanoseconds: number): number => nanoseconds / NANOSECONDS_PER_MS;
  const { utilization } = performance.eventLoopUtilization();
  return { meanMs: ms(delay.mean), p99Ms: ms(delay.percentile(99)), maxMs: ms(delay.max), utilization };
}
