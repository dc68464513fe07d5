/**
 * A file of 1 GB copied into a running container and out of it: by a client that costs next to nothing and sends what
 * `docker cp` sends, and by `docker cp` itself, most of whose time is that of the CLI.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeHeader, END_OF_ARCHIVE, padding } from '../src/storage/tar/header-writer.js';
import { dockerOk } from '../test/support/cli.js';
import type { Engine } from '../test/support/engine.js';
import { BlockingConnection, checkStatus } from './blocking-client.js';
import { createContainer, removeContainer, startContainer } from './containers.js';
import { timedWarm, type Measure } from './measure.js';

const BYTES = 1_000_000_000;
/** As large as those of `docker cp`. */
const CHUNK_BYTES = 32 * 1024;
/** The file is this many bytes again and again, which are no holes. */
const PATTERN_BYTES = 1 << 20;

export const copy: Measure = {
  name: 'copy',
  metrics: [
    { name: 'cp 1 GB into a container', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'cp 1 GB out of a container', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'docker cp 1 GB into a container', unit: 'ms', moreIsBetter: false },
    { name: 'docker cp 1 GB out of a container', unit: 'ms', moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    return async () => {
      const dir = mkdtempSync(join(tmpdir(), 'bench-copy-'));
      const id = await createContainer(engine, { image, command: ['sleep', '1000'], network: 'none' });
      try {
        await startContainer(engine, id);
        const pattern = randomBytes(PATTERN_BYTES);
        const body = bodyOf(pattern);
        // The disk is not to be busy with the files of the round before, or of this one, while copies are measured.
        execFileSync('sync');
        const into = await timedWarm(async () => copyIn(engine, id, body));
        const out = await timedWarm(async () => copyOut(engine, id));
        execFileSync('sync');
        const dockerOut = await timedWarm(() => dockerOk(engine, ['cp', `${id}:/file`, join(dir, 'out')]));
        check(join(dir, 'out'), pattern);
        execFileSync('sync');
        const dockerInto = await timedWarm(() => dockerOk(engine, ['cp', join(dir, 'out'), `${id}:/again`]));
        return {
          'cp 1 GB into a container': into,
          'cp 1 GB out of a container': out,
          'docker cp 1 GB into a container': dockerInto,
          'docker cp 1 GB out of a container': dockerOut,
        };
      } finally {
        await removeContainer(engine, id);
        rmSync(dir, { recursive: true });
      }
    };
  },
};

/** A body in chunks: what comes first, what comes again and again, and what comes last. */
interface Body {
  readonly first: Buffer;
  readonly repeated: Buffer;
  readonly times: number;
  readonly last: Buffer;
}

export function bodyOf(pattern: Buffer): Body {
  const chunk = (bytes: Buffer): Buffer =>
    Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);
  const chunks = (bytes: Buffer): Buffer[] =>
    Array.from({ length: Math.ceil(bytes.length / CHUNK_BYTES) }, (_, index) =>
      chunk(bytes.subarray(index * CHUNK_BYTES, (index + 1) * CHUNK_BYTES)),
    );
  const rest = BYTES % PATTERN_BYTES;
  const head = encodeHeader({
    type: '0',
    name: 'file',
    mode: 0o644,
    uid: 0,
    gid: 0,
    sizeBytes: BYTES,
    mtimeSeconds: 0,
  });
  return {
    first: chunk(head),
    repeated: Buffer.concat(chunks(pattern)),
    times: Math.floor(BYTES / PATTERN_BYTES),
    last: Buffer.concat([
      ...chunks(pattern.subarray(0, rest)),
      chunk(Buffer.concat([padding(BYTES), END_OF_ARCHIVE])),
      chunk(Buffer.alloc(0)),
    ]),
  };
}

export function copyIn(engine: Engine, id: string, { first, repeated, times, last }: Body): void {
  const connection = new BlockingConnection(engine);
  connection.ask('HEAD', `/containers/${id}/archive?path=%2Ffile`);
  connection.readEmpty(200, 404);
  connection.ask('PUT', `/containers/${id}/archive?noOverwriteDirNonDir=true&path=%2F`, 'Transfer-Encoding: chunked');
  connection.write(first);
  for (let time = 0; time < times; time++) connection.write(repeated);
  connection.write(last);
  connection.readEmpty(200);
  connection.close();
}

export function copyOut(engine: Engine, id: string): void {
  const connection = new BlockingConnection(engine);
  connection.ask('GET', `/containers/${id}/archive?path=%2Ffile`, 'Connection: close');
  const { bytes, begin, end } = connection.countToEnd();
  connection.close();
  checkStatus(begin, [200]);
  if (bytes < BYTES || !end.endsWith('\r\n0\r\n\r\n'))
    throw new Error(`only ${bytes} bytes came, up to ${JSON.stringify(end)}`);
}

/** Throws unless a file is the one that was copied. */
function check(path: string, pattern: Buffer): void {
  const fd = openSync(path, 'r');
  try {
    const piece = Buffer.alloc(PATTERN_BYTES);
    let bytes = 0;
    for (let count; (count = readSync(fd, piece)) > 0; bytes += count)
      if (!piece.subarray(0, count).equals(pattern.subarray(0, count))) throw new Error(`${path} has other bytes`);
    if (bytes !== BYTES) throw new Error(`${path} has ${bytes} bytes`);
  } finally {
    closeSync(fd);
  }
}
