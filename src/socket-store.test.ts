import assert from 'node:assert/strict';
import { closeSync, openSync } from 'node:fs';
import test from 'node:test';
import { SocketStore } from './socket-store.js';

test('what the service manager has no room for is not taken to be kept, and that is told once', () => {
  const fd = openSync('/dev/null', 'r');
  const told: string[] = [];
  let timesFull = 0;
  const tell = (text: string): boolean => told.push(text.replace(/\nFDNAME=.*/s, '')) > 0;
  const store = new SocketStore(new Map(), { tell, limit: 2, onFull: () => timesFull++ });
  try {
    store.keep('first', fd);
    store.keep('first', fd);
    assert.ok(store.pass('second', fd));
    store.keep('third', fd);
    assert.equal(store.pass('fourth', fd), false);
    assert.deepEqual(told, ['FDSTORE=1', 'FDSTORE=1\nFDPOLL=0']);
    const outliving = ['first', 'second', 'third', 'fourth'].filter((name) => store.outlives(name));
    assert.deepEqual(outliving, ['first', 'second']);
    assert.equal(timesFull, 1);
    store.drop('first');
    assert.ok(store.pass('fourth', fd));
    assert.equal(timesFull, 1);
  } finally {
    closeSync(fd);
  }
});
