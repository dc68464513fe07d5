import assert from 'node:assert/strict';
import { closeSync, constants, mkdirSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { LogPlugin } from '../../ports/log-plugin.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { openPluginSink } from './plugin-log.js';

test('a plugin whose start has failed is waited for, like one that is disabled', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'plugin-log-'));
  const reader: { fd?: number } = {};
  const close = (): void => {
    if (reader.fd !== undefined) closeSync(reader.fd);
    delete reader.fd;
  };
  t.after(() => {
    close();
    rmSync(directory, { recursive: true });
  });
  let looks = 0;
  const plugin: LogPlugin = {
    directory,
    requireEnabled: () => {
      // Its directory comes back between two looks.
      looks += 1;
      if (looks > 1) mkdirSync(directory);
    },
    startLogging: async (name: string) =>
      void (reader.fd = openSync(join(directory, name), constants.O_RDONLY | constants.O_NONBLOCK)),
    stopLogging: async () => undefined,
    canRead: async () => false,
    readLogs: () => assert.fail('nobody reads'),
  };
  const container: LoggedContainer = {
    id: 'c',
    dir: directory,
    driver: 'logs',
    options: {},
    labels: {},
    env: [],
    name: 'c',
    imageName: 'image',
  };
  const sink = await openPluginSink(plugin, container);
  close();
  rmSync(directory, { recursive: true });
  const record = { stream: 'stdout', timeNs: 1n, line: Buffer.from('kept'), piece: undefined } as const;
  await sink.send([record], new AbortController().signal);
  const bytes = Buffer.alloc(1000);
  assert.match(bytes.subarray(0, readSync(reader.fd ?? -1, bytes)).toString('latin1'), /kept/);
  assert.equal(looks, 2);
  sink.close();
});
