/** Helps the tests of logs: opens a log in a directory of its own, and reads it. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { ContainerLog, LogReadOptions } from '../ports/logs.js';
import { createLogDriver } from './drivers/log-driver.js';

export const ID = 'c'.repeat(64);

export const ALL: LogReadOptions = {
  stdout: true,
  stderr: true,
  follow: false,
  timestamps: false,
  details: false,
  sinceNs: undefined,
  untilNs: undefined,
  tail: undefined,
  multiplexed: false,
};

/** Opens logs of one container in a directory that is deleted with the test. */
export async function logFixture(t: TestContext, driverName = 'json-file') {
  const dir = await mkdtemp(join(tmpdir(), 'logs-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const seen = { written: 0, dropped: 0, damaged: 0, failures: [] as string[] };
  const driver = createLogDriver(() => ({
    written: (bytes) => (seen.written += bytes),
    dropped: (lines) => (seen.dropped += lines),
    damaged: (bytes) => (seen.damaged += bytes),
    readFailed: () => undefined,
    failed: (_error, what) => seen.failures.push(what),
  }));
  const container = {
    id: ID,
    dir,
    driver: driverName,
    options: {},
    labels: {},
    env: [],
    name: 'web',
    imageName: 'busybox',
  };
  return {
    dir,
    seen,
    driver,
    container,
    path: driverName === 'local' ? join(dir, 'local-logs', 'container.log') : join(dir, `${ID}-json.log`),
    open: (changes: Partial<Parameters<typeof driver.open>[0]> = {}): Promise<ContainerLog> =>
      driver.open({ ...container, ...changes }),
    /** Returns the bytes that a reader of the stopped container gets. */
    readStopped: (options: Partial<LogReadOptions> = {}): Promise<Buffer> =>
      collect(driver.read(container, { ...ALL, ...options })),
  };
}

export async function collect(source: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Reads everything with these options changed. */
export function readAll(log: ContainerLog, options: Partial<LogReadOptions> = {}): Promise<Buffer> {
  return collect(log.read({ ...ALL, ...options }));
}

/** Numbers from 0 up to 1, the same for every run of a test. */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** Writes as the reader of a container's output does: it waits when it is asked to. */
export async function writeAll(
  log: ContainerLog,
  stream: 'stdout' | 'stderr',
  chunks: Iterable<Buffer>,
): Promise<void> {
  for (const chunk of chunks)
    if (!log.write(stream, chunk)) await new Promise<void>((resolve) => log.onceDrained(resolve));
}
