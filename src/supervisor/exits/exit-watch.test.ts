import assert from 'node:assert/strict';
import test from 'node:test';
import type { TaskEvent } from '../../ports/supervisor.js';
import { ExitWatch } from './exit-watch.js';

function exit(id: string, execId = ''): TaskEvent {
  return { type: 'exit', id, execId, pid: 1, exit: { exitCode: 0, exitedAt: new Date(0) } };
}

test('an exit is news once, and awaited until then', () => {
  const watch = new ExitWatch();
  watch.add({ id: 'a', execId: '' });
  watch.add({ id: 'a', execId: 'e' });
  assert.deepEqual(watch.awaited(), [
    { id: 'a', execId: 'e' },
    { id: 'a', execId: '' },
  ]);
  assert.equal(watch.isNews(exit('a', 'e')), true);
  assert.equal(watch.isNews(exit('a', 'e')), false);
  assert.deepEqual(watch.awaited(), [{ id: 'a', execId: '' }]);
  assert.equal(watch.isNews({ type: 'oom', id: 'a' }), true);
  assert.equal(watch.isNews(exit('a')), true);
  assert.equal(watch.isNews({ type: 'oom', id: 'a' }), false);
  watch.ensure({ id: 'a', execId: 'e' });
  assert.equal(watch.isNews(exit('a', 'e')), false);
});

test('a task takes its execs along when it goes; exits of strangers and other events are news', () => {
  const watch = new ExitWatch();
  watch.add({ id: 'a', execId: '' });
  watch.add({ id: 'a', execId: 'e' });
  watch.remove({ id: 'a', execId: '' });
  assert.deepEqual(watch.awaited(), []);
  assert.equal(watch.isNews(exit('a')), true);
  assert.equal(watch.isNews({ type: 'oom', id: 'a' }), true);
});
