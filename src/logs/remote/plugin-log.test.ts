import assert from 'node:assert/strict';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict } from '../../errors/engine-error.js';
import type { LogPlugin } from '../../ports/log-plugin.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { openPluginSink } from './plugin-log.js';
import type { RemoteRecord } from './remote-sink.js';

const { signal } = new AbortController();

/** A plugin that reads when the test does. */
class Reader {
  readonly directory = mkdtempSync(join(tmpdir(), 'plugin-log-'));
  #fd: number | undefined;

  constructor(t: TestContext) {
    t.after(() => {
      this.die();
      rmSync(this.directory, { recursive: true });
    });
  }

  plugin(requireEnabled: () => void): LogPlugin {
    return {
      directory: this.directory,
      requireEnabled,
      startLogging: async (name: string) =>
        void (this.#fd = openSync(join(this.directory, name), constants.O_RDONLY | constants.O_NONBLOCK)),
      stopLogging: async () => undefined,
      canRead: async () => false,
      readLogs: () => assert.fail('nobody reads'),
    };
  }

  get container(): LoggedContainer {
    const { directory: dir } = this;
    return { id: 'c', dir, driver: 'logs', options: {}, labels: {}, env: [], name: 'c', imageName: 'image' };
  }

  read(count: number): Buffer {
    const bytes = Buffer.alloc(count);
    return bytes.subarray(0, readSync(this.#fd ?? -1, bytes));
  }

  /** Returns the lines of the entries that are there; each is told apart by its length. */
  lines(): string[] {
    const lines: string[] = [];
    for (let rest = this.read(65536); rest.length > 0;) {
      const length = 4 + rest.readUInt32BE();
      assert.ok(length <= rest.length, 'the last entry is whole');
      lines.push(/line \w+/.exec(rest.toString('latin1', 4, length))?.[0] ?? '');
      rest = rest.subarray(length);
    }
    return lines;
  }

  die(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }
}

let timeNs = 0n;
const record = (name: string): RemoteRecord => {
  timeNs += 1n;
  return { stream: 'stdout', timeNs, line: Buffer.from(`line ${name}`), piece: undefined };
};

test('a plugin whose start has failed is waited for, like one that is disabled', async (t) => {
  const reader = new Reader(t);
  let looks = 0;
  const requireEnabled = (): void => {
    // Its directory comes back between two looks.
    looks += 1;
    if (looks > 1) mkdirSync(reader.directory);
  };
  const sink = await openPluginSink(reader.plugin(requireEnabled), reader.container);
  reader.die();
  rmSync(reader.directory, { recursive: true });
  await sink.send([record('kept')], signal);
  assert.deepEqual(reader.lines(), ['line kept']);
  assert.equal(looks, 2);
  sink.close();
});

test('what a plugin has not read when it dies is given to the next one, in whole entries', async (t) => {
  const reader = new Reader(t);
  const sink = await openPluginSink(
    reader.plugin(() => undefined),
    reader.container,
  );
  await sink.send([record('read')], signal);
  assert.deepEqual(reader.lines(), ['line read']);
  await sink.send([record('half'), record('unread')], signal);
  await sink.send([record('either')], signal);
  reader.read(10);
  reader.die();
  await sink.send([record('next')], signal);
  assert.deepEqual(reader.lines(), ['line half', 'line unread', 'line either', 'line next']);
  reader.die();
  await sink.send([record('last')], signal);
  assert.deepEqual(reader.lines(), ['line last']);
  sink.close();
});

test('lines do not wait for ever for a plugin that stays away, which gets the next ones when it is back', async (t) => {
  const reader = new Reader(t);
  let isEnabled = true;
  const requireEnabled = (): void => {
    if (!isEnabled) throw conflict('it is disabled');
  };
  const sink = await openPluginSink(reader.plugin(requireEnabled), reader.container, 0);
  reader.die();
  isEnabled = false;
  await assert.rejects(sink.send([record('first')], signal), /EPIPE|disabled/);
  await assert.rejects(sink.send([record('second')], signal), /away|disabled/);
  isEnabled = true;
  const send = (): Promise<boolean> =>
    sink.send([record('third')], signal).then(
      () => true,
      () => false,
    );
  while (!(await send())) await sleep(10);
  assert.deepEqual(reader.lines().slice(-1), ['line third']);
  sink.close();
});
