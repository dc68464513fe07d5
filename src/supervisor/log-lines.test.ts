import assert from 'node:assert/strict';
import test from 'node:test';
import type { Logger } from '../ports/logger.js';
import { LogLines } from './log-lines.js';

function collect(): { lines: LogLines; seen: string[] } {
  const seen: string[] = [];
  const write =
    (level: string) =>
    (fields: object, message: string): void => {
      seen.push(`${level}|${message}|${JSON.stringify(fields)}`);
    };
  const logger: Logger = {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: () => logger,
  };
  return { lines: new LogLines(logger, () => {}), seen };
}

test('lines keep their level and fields, however they are cut into chunks', () => {
  const { lines, seen } = collect();
  const first = JSON.stringify({ level: 'warning', msg: 'schräg', time: 'now', id: 'x' });
  const text = `${first}\n{"level":"fatal","msg":"b"}\n`;
  for (const byte of Buffer.from(text)) lines.push(Buffer.of(byte));
  assert.deepEqual(seen, ['warn|schräg|{"id":"x"}', 'error|b|{}']);
});

test('lines of shims and of the Go runtime are understood, routine is demoted', () => {
  const { lines, seen } = collect();
  lines.push(Buffer.from('time="2026-01-01T00:00:00Z" level=info msg="a \\"quoted\\" word" runtime=x\n'));
  lines.push(Buffer.from('time="2026-01-01T00:00:00Z" level=info msg="starting signal loop" pid=1\n'));
  lines.push(Buffer.from('{"level":"warning","msg":"cleaning up after shim disconnected"}\npanic: oh\n'));
  assert.deepEqual(seen, [
    'info|a "quoted" word|{}',
    'debug|starting signal loop|{}',
    'debug|cleaning up after shim disconnected|{}',
    'error|panic: oh|{}',
  ]);
});

test('foreign lines that come together are passed on as one', () => {
  const { lines, seen } = collect();
  lines.push(Buffer.from('panic: oh\ngoroutine 1\n\tmain.go:1\n{"level":"info","msg":"a"}\nexit status 2\n'));
  assert.deepEqual(seen, ['error|panic: oh\ngoroutine 1\n\tmain.go:1|{}', 'info|a|{}', 'error|exit status 2|{}']);
});

test('the tail tells of problems first, and of a bounded number of lines', () => {
  const { lines } = collect();
  for (let index = 0; index < 100; index++) lines.push(Buffer.from(`{"level":"info","msg":"line ${index}"}\n`));
  assert.equal(lines.tail().split('\n').length, 20);
  assert.match(lines.tail(), /line 99$/);
  lines.push(Buffer.from('{"level":"error","msg":"failed","error":"no space left"}\n'));
  assert.equal(lines.tail(), 'failed: no space left');
});
