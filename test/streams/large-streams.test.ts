/** Archives much larger than the memory that the daemon may take for them, in and out. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson, jsonLines, open } from '../support/http.js';
import { generatedBytes, tarOf } from '../support/image-builder.js';

/** The long run: ENGINE_STREAM_MB=10000. */
const TOTAL_MB = Number(process.env['ENGINE_STREAM_MB'] ?? 150);
const MB = 1 << 20;
const FILE_MB = 50;
const MAX_GROWTH_MB = 130;

const cleanup = new Cleanup();
let source: Engine;
let target: Engine;

before(async () => {
  source = await Engine.start(engined());
  cleanup.add(() => source.close());
  target = await Engine.start(engined());
  cleanup.add(() => target.close());
});
after(() => cleanup.run());

/** A tar of files of 50 MB that all differ. */
async function* largeTar(): AsyncGenerator<Buffer> {
  const piece = generatedBytes(MB, 5);
  for (let file = 0; file < TOTAL_MB / FILE_MB; file++) {
    // Its size is put in afterwards: the builder would hold the content in memory.
    const header = tarOf([{ path: `f${file}`, content: '' }]).subarray(0, 512);
    header.write((FILE_MB * MB).toString(8).padStart(11, '0'), 124, 'latin1');
    header.fill(' ', 148, 156);
    const sum = header.reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
    yield header;
    for (let at = 0; at < FILE_MB; at++) {
      const own = Buffer.from(piece);
      own.writeUInt32LE(file, 0);
      yield own;
    }
  }
  yield Buffer.alloc(1024);
}

/** Sends a body as it comes; resolves with the last line of the reply. */
async function upload(
  engine: Engine,
  path: string,
  body: AsyncIterable<Uint8Array>,
): Promise<Readonly<Record<string, string>>> {
  const outgoing = request({
    socketPath: engine.socketPath,
    method: 'POST',
    path,
    headers: { 'Content-Type': 'application/x-tar' },
    agent: false,
  });
  const reply = new Promise<IncomingMessage>((resolve, reject) =>
    outgoing.once('response', resolve).once('error', reject),
  );
  await pipeline(Readable.from(body, { objectMode: false, highWaterMark: MB }), outgoing);
  let last: Readonly<Record<string, string>> = {};
  for await (const line of jsonLines<Readonly<Record<string, string>>>(await reply)) last = line;
  return last;
}

const residentMb = (engine: Engine): number =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${engine.pid}/status`, 'utf8'))?.[1]) / 1024;

/** Megabytes that the daemons grow by at most while something is done. */
async function growth(work: () => Promise<void>): Promise<number> {
  const engines = [source, target].map((engine) => ({ engine, before: residentMb(engine) }));
  let most = 0;
  const timer = setInterval(
    () => (most = Math.max(most, ...engines.map(({ engine, before }) => residentMb(engine) - before))),
    50,
  );
  await work().finally(() => clearInterval(timer));
  return most;
}

test(
  'an import, a save and a load of it take little memory and keep every byte',
  { timeout: 120_000 + TOTAL_MB * 300 },
  async (t) => {
    let id = '';
    const importing = await growth(async () => {
      id = (await upload(source, '/images/create?fromSrc=-&repo=large&tag=1', largeTar()))['status'] ?? '';
    });
    assert.match(id, /^sha256:/);
    const moving = await growth(async () => {
      const { message } = await open(source.socketPath, 'GET', '/images/large:1/get');
      assert.deepEqual(await upload(target, '/images/load', message), { stream: 'Loaded image: large:1\n' });
    });
    t.diagnostic(
      `${TOTAL_MB} MB: ${Math.round(importing)} MB of memory for the import, ${Math.round(moving)} for save and load`,
    );
    // The layer is read and hashed on both sides: equal IDs are equal bytes.
    assert.equal((await callJson<{ Id: string }>(target.socketPath, 'GET', '/images/large:1/json')).Id, id);
    assert.ok(Math.max(importing, moving) < MAX_GROWTH_MB, `${importing} and ${moving} MB`);
  },
);
