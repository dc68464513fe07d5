/** Throughput of the json-file encoder: payload bytes per second on one core, for lines of several kinds. */
import { JsonEncoder } from '../../src/logs/drivers/json-encoder.js';

const CHUNK_BYTES = 64 * 1024;
const ROUNDS = 4000;

const EVENT = {
  level: 'info',
  msg: 'request done',
  path: '/v1/things',
  status: 200,
  durationMs: 12.5,
  id: 'a'.repeat(32),
};

const lines: Readonly<Record<string, string>> = {
  'ascii, 100 bytes': `${'x'.repeat(20)} the quick brown fox jumps over the lazy dog 0123456789 ${'y'.repeat(22)}\n`,
  'ascii, 1000 bytes': `${'0123456789'.repeat(100)}\n`,
  'json, 130 bytes': `${JSON.stringify(EVENT)}\n`,
  'utf-8, 110 bytes': `${'Größe: 12 µm, Straße 5 — '.repeat(4)}\n`,
};

for (const [name, line] of Object.entries(lines)) {
  const chunk = Buffer.from(line.repeat(Math.floor(CHUNK_BYTES / Buffer.byteLength(line))));
  const encoder = new JsonEncoder();
  const out = Buffer.allocUnsafeSlow(CHUNK_BYTES * 6);
  const round = (): void => {
    encoder.begin('stdout', 1_735_787_045_123_456_789n);
    if (encoder.encodeLines(chunk, 0, out, 0, out.length / 2) !== chunk.length) throw new Error('not all was encoded');
  };
  for (let i = 0; i < ROUNDS / 4; i++) round();
  // Processor time, so that whatever else the machine does is not counted.
  const start = process.cpuUsage();
  for (let i = 0; i < ROUNDS; i++) round();
  const { user, system } = process.cpuUsage(start);
  const seconds = (user + system) / 1e6;
  console.log(
    JSON.stringify({
      bench: 'logs/encode',
      lines: name,
      payloadMBps: Math.round((ROUNDS * chunk.length) / 1e6 / seconds),
      writtenMBps: Math.round((ROUNDS * encoder.end) / 1e6 / seconds),
    }),
  );
}
