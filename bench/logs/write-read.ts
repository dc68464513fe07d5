/**
 * A json-file log of 200 MB of output: written in chunks as a FIFO yields them, read back, followed by twenty readers.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { createLogDriver } from '../../src/logs/drivers/log-driver.js';
import type { ContainerLog, LogReadOptions } from '../../src/ports/logs.js';

const CHUNK_BYTES = 64 * 1024;
const ALL: LogReadOptions = {
  stdout: true,
  stderr: true,
  follow: false,
  timestamps: false,
  details: false,
  sinceNs: undefined,
  untilNs: undefined,
  tail: undefined,
  multiplexed: true,
};
const LINE = Buffer.from(
  `${'x'.repeat(20)} the quick brown fox jumps over the lazy dog 0123456789 ${'y'.repeat(22)}\n`,
);
const CHUNK = Buffer.concat(Array.from({ length: Math.floor(CHUNK_BYTES / LINE.length) }, () => LINE));

const driver = createLogDriver(() => ({
  written: () => {},
  dropped: () => {},
  damaged: () => {},
  readFailed: (error) => console.error(error),
  failed: (error) => console.error(error),
}));

async function write(log: ContainerLog, bytes: number, chunk = CHUNK): Promise<void> {
  for (let written = 0; written < bytes; written += chunk.length) {
    if (!log.write('stdout', chunk)) await new Promise<void>((resolve) => log.onceDrained(resolve));
    await setImmediate();
  }
}

async function read(log: ContainerLog, options: Partial<LogReadOptions>): Promise<number> {
  let bytes = 0;
  for await (const piece of log.read({ ...ALL, ...options })) bytes += piece.length;
  return bytes;
}

async function measure(what: string, payloadBytes: number, task: () => Promise<unknown>): Promise<void> {
  const start = performance.now();
  const cpu = process.cpuUsage();
  await task();
  const seconds = (performance.now() - start) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  console.log(
    JSON.stringify({
      bench: 'logs/write-read',
      what,
      seconds: Number(seconds.toFixed(3)),
      cpuSeconds: Number(((user + system) / 1e6).toFixed(3)),
      payloadMBps: Math.round(payloadBytes / 1e6 / seconds),
      payloadMBperCpuSecond: Math.round(payloadBytes / (user + system)),
      rssMB: Math.round(process.memoryUsage.rss() / 1e6),
    }),
  );
}

const dir = await mkdtemp(join(tmpdir(), 'logs-bench-'));
try {
  const container = { dir, driver: 'json-file', options: {}, labels: {}, env: [], name: 'bench', imageName: 'bench' };
  const log = await driver.open({ ...container, id: 'a' });
  const size = 200e6;
  await measure('write 200 MB', size, async () => {
    await write(log, size);
    await read(log, { tail: 1 });
  });
  for (let i = 0; i < 2; i++) await measure('read it back', size, () => read(log, {}));
  await measure('read it back with timestamps', size, () => read(log, { timestamps: true }));
  await measure('tail 100', 0, () => read(log, { tail: 100 }));
  await measure('since now', 0, () => read(log, { sinceNs: BigInt(Date.now()) * 1_000_000n }));
  await log.close();

  const followed = await driver.open({ ...container, id: 'b' });
  await measure('20 followers of 50 MB', 50e6, async () => {
    const readers = Array.from({ length: 20 }, () => read(followed, { follow: true }));
    await write(followed, 50e6);
    await followed.close();
    await Promise.all(readers);
  });

  const byLine = await driver.open({ ...container, id: 'c' });
  await measure('write 10 MB line by line', 10e6, async () => {
    for (let i = 0; i < 100_000; i++) {
      if (!byLine.write('stdout', LINE)) await new Promise<void>((resolve) => byLine.onceDrained(resolve));
      if (i % 8 === 0) await setImmediate();
    }
    await read(byLine, { tail: 1 });
  });
  await measure('read 10 MB of single lines', 10e6, () => read(byLine, {}));
  await measure('read 10 MB of single lines with timestamps', 10e6, () => read(byLine, { timestamps: true }));
  await byLine.close();
} finally {
  await rm(dir, { recursive: true, force: true });
}
