import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cancelled, internal, isEngineError } from '../../errors/engine-error.js';
import { type JobRun, SharedJobs, type SharedJobsOptions } from './shared-jobs.js';

interface Call {
  readonly run: JobRun<string>;
  resolve(result: string): void;
  reject(error: unknown): void;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const stays = new AbortController().signal;

function start(options: Partial<SharedJobsOptions<string, string>> = {}) {
  const calls: Call[] = [];
  const log: string[] = [];
  const jobs = new SharedJobs<string, string>({
    kind: 'job',
    run: (_, run) => new Promise((resolve, reject) => calls.push({ run, resolve, reject })),
    onAnswer: (input) => void log.push(`answer ${input}`),
    onSuccess: (input) => void log.push(`success ${input}`),
    onGivenUp: (name) => void log.push(`given up ${name}`),
    ...options,
  });
  const join = (signal: AbortSignal = stays) => jobs.join('k', 'i', signal);
  const call = (index: number): Call => calls[index] ?? assert.fail(`no run ${index}`);
  return { jobs, calls, call, log, join };
}

test('everybody who waits gets the result of one run, and then the job is over', async () => {
  const { jobs, calls, call, log, join } = start();
  const joins = [join(), join()];
  call(0).resolve('r');
  assert.deepEqual(
    (await Promise.all(joins)).map(({ result }) => result),
    ['r', 'r'],
  );
  assert.equal(calls.length, 1);
  assert.deepEqual(log, ['answer i', 'answer i', 'success i']);
  assert.equal(jobs.size, 0);
});

test('a failure is told to everybody who waits', async () => {
  const { jobs, call, log, join } = start();
  const joins = [join(), join()];
  call(0).reject(internal('broken'));
  for (const one of joins) await assert.rejects(one, { message: 'broken' });
  assert.deepEqual([jobs.size, log], [0, []]);
});

test('what a run shares answers those who wait and those who come; only the last who leaves cancels', async () => {
  const { call, join } = start();
  const early = join();
  call(0).run.share('shared');
  const members = [await early, await join()];
  assert.deepEqual(
    members.map(({ result }) => result),
    ['shared', 'shared'],
  );
  members[0]?.leave();
  members[0]?.leave();
  assert.equal(call(0).run.signal.aborted, false);
  members[1]?.leave();
  assert.equal(call(0).run.signal.aborted, true);
});

test('one who goes away while waiting is told so and counts no more', async () => {
  const { call, join } = start();
  const gone = new AbortController();
  const [first, second] = [join(gone.signal), join()];
  gone.abort();
  await assert.rejects(first, (error) => isEngineError(error, 'cancelled'));
  assert.equal(call(0).run.signal.aborted, false);
  call(0).resolve('r');
  assert.equal((await second).result, 'r');
  await assert.rejects(join(gone.signal), (error) => isEngineError(error, 'cancelled'));
});

test('one who comes while a job is cancelled gets a new run when it has ended, or its success', async () => {
  for (const succeeds of [false, true]) {
    const { calls, call, join } = start();
    const first = join();
    call(0).run.share('old');
    (await first).leave();
    const late = join();
    await turn();
    assert.equal(calls.length, 1, 'the old run has not ended');
    if (succeeds) call(0).resolve('done after all');
    else {
      call(0).reject(cancelled('not wanted'));
      await turn();
      assert.notEqual(call(1).run.name, call(0).run.name);
      call(1).resolve('new');
    }
    assert.equal((await late).result, succeeds ? 'done after all' : 'new');
    assert.equal(calls.length, succeeds ? 1 : 2);
  }
});

test('a cancelled run that does not end is given up, and what it does later changes nothing', async () => {
  const { jobs, calls, call, log, join } = start({ cancelLimitMs: 20 });
  const gone = new AbortController();
  const first = join(gone.signal);
  gone.abort();
  await assert.rejects(first);
  const late = join();
  while (calls.length < 2) await turn();
  assert.deepEqual(log, [`given up ${call(0).run.name}`]);
  call(0).run.share('too late');
  call(0).resolve('too late');
  await turn();
  assert.deepEqual(log.slice(1), ['success i'], 'it gives back what it took');
  assert.equal(jobs.size, 1);
  call(1).resolve('new');
  assert.equal((await late).result, 'new');
});

test('a cancelled run that nobody wants again is given up, too', async () => {
  const { jobs, log, join } = start({ cancelLimitMs: 20 });
  const gone = new AbortController();
  const first = join(gone.signal);
  gone.abort();
  await assert.rejects(first);
  while (jobs.size > 0) await turn();
  assert.equal(log.length, 1);
});

test('the jobs can be described', async () => {
  const { call, jobs, join } = start();
  const joined = join();
  assert.deepEqual(jobs.describe(), [{ id: 'k', state: 'wanted', effects: ['job'], unanswered: 1 }]);
  call(0).run.share('s');
  (await joined).leave();
  assert.deepEqual(jobs.describe(), [{ id: 'k', state: 'cancelling', effects: ['job'], unanswered: 0 }]);
});
