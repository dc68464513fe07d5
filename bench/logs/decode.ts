/** Throughput of the json-file decoder: payload bytes per second on one core. */
import { JsonDecoder } from '../../src/logs/drivers/json-decoder.js';
import { JsonEncoder } from '../../src/logs/drivers/json-encoder.js';

const BLOCK_BYTES = 256 * 1024;
const ROUNDS = 2000;
const OPTIONS = {
  stdout: true,
  stderr: true,
  timestamps: false,
  details: false,
  sinceNs: undefined,
  untilNs: undefined,
  multiplexed: true,
};
const LINE = Buffer.from(
  `${'x'.repeat(20)} the quick brown fox jumps over the lazy dog 0123456789 ${'y'.repeat(22)}\n`,
);

/** @param linesPerTime how many records in a row have the same time: as many as came in one chunk. */
function measure(name: string, linesPerTime: number, changes: Partial<typeof OPTIONS>): void {
  const encoder = new JsonEncoder();
  const block = Buffer.alloc(BLOCK_BYTES);
  let end = 0;
  let lines = 0;
  for (; end < BLOCK_BYTES - 400; lines++) {
    if (lines % linesPerTime === 0) encoder.begin('stdout', 1_735_787_045_123_456_789n + BigInt(lines));
    end = encoder.encode(LINE, 0, LINE.length - 1, undefined, block, end);
  }
  const decoder = new JsonDecoder({ ...OPTIONS, ...changes }, () => {});
  for (let i = 0; i < ROUNDS / 4; i++) decoder.decode(block, end);
  // Processor time, so that whatever else the machine does is not counted.
  const start = process.cpuUsage();
  for (let i = 0; i < ROUNDS; i++) decoder.decode(block, end);
  const { user, system } = process.cpuUsage(start);
  const seconds = (user + system) / 1e6;
  console.log(
    JSON.stringify({
      bench: 'logs/decode',
      records: name,
      payloadMBps: Math.round((ROUNDS * lines * LINE.length) / 1e6 / seconds),
      readMBps: Math.round((ROUNDS * end) / 1e6 / seconds),
    }),
  );
}

measure('in chunks', 600, {});
measure('in chunks, with timestamps', 600, { timestamps: true });
measure('one by one', 1, {});
measure('one by one, with timestamps', 1, { timestamps: true });
