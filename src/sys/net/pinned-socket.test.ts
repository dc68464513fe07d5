import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { connectPinned } from './pinned-socket.js';

test('the socket at a path is connected to, nothing that a link leads to, also when they are exchanged', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'pinned-'));
  const [own, others, path] = [join(dir, 'own'), join(dir, 'others'), join(dir, 'plugin.sock')];
  const servers = [own, others].map((place) =>
    createServer((socket) => socket.end(place === own ? 'own' : 'others')).listen(place),
  );
  try {
    await Promise.all(servers.map((server) => once(server, 'listening')));
    renameSync(own, path);
    const connection = connectPinned(path);
    // The exchange comes after the call, while the connection is being made.
    renameSync(path, own);
    symlinkSync(others, path);
    assert.equal(String((await once(connection, 'data'))[0]), 'own');
    const isRefused = (error: unknown): boolean => isEngineError(error, 'unavailable') && error.code === 'ENOENT';
    assert.throws(() => connectPinned(path), isRefused);
    rmSync(path);
    assert.throws(() => connectPinned(path), isRefused);
    writeFileSync(path, '');
    assert.throws(() => connectPinned(path), isRefused);
  } finally {
    for (const server of servers) server.close();
    rmSync(dir, { recursive: true });
  }
});
