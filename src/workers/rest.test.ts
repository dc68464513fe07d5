import assert from 'node:assert/strict';
import { constants, type NodeGCPerformanceDetail, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { waitFor } from '../../test/support/wait.js';
import { collector } from '../sys/process/collector.js';
import { taskBegins, taskEnds } from './rest.js';

const OBJECTS = 300_000;
/** Less than those objects take. */
const BYTES = 6 << 20;

interface Collection extends PerformanceEntry {
  readonly detail: NodeGCPerformanceDetail;
}

/** Leaves objects that are garbage, but old: V8 collects such ones when a heap has grown by much, or after seconds. */
function leaveGarbage(): void {
  const objects = Array.from({ length: OBJECTS }, (_, index) => ({ index }));
  for (let time = 0; time < 2; time++) collector()?.({ type: 'minor' });
  assert.equal(objects.length, OBJECTS);
}

test('what tasks have left is collected when no other one runs', async () => {
  /** Collections of everything that V8 did not begin by itself, from a time on: it makes some of minor ones. */
  let [collections, since] = [0, Infinity];
  const observer = new PerformanceObserver((list) => {
    for (const { detail, startTime } of list.getEntries() as Collection[]) {
      const { kind, flags } = detail;
      const isForced = (flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0;
      if (kind === constants.NODE_PERFORMANCE_GC_MAJOR && isForced && startTime >= since) collections += 1;
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  taskBegins();
  taskBegins();
  leaveGarbage();
  const before = getHeapStatistics().used_heap_size;
  since = performance.now();
  taskEnds(false);
  taskEnds(false);
  await waitFor('the collection', () => collections > 0);
  assert.ok(getHeapStatistics().used_heap_size < before - BYTES);
  observer.disconnect();
});
