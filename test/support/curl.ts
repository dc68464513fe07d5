/** The curl program over a daemon's socket: the client that every user has. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Engine } from './engine.js';

const run = promisify(execFile);

export interface CurlReply {
  readonly status: number;
  /** Status line and header lines, without the last empty one. */
  readonly head: readonly string[];
  readonly body: string;
}

/** Runs `curl -i ARGS URL` with the path under the given API version and splits what it prints. */
export async function curl(engine: Engine, path: string, ...args: string[]): Promise<CurlReply> {
  const { stdout } = await run(
    'curl',
    ['-sS', '-i', '--max-time', '60', '--unix-socket', engine.socketPath, ...args, `http://localhost${path}`],
    {
      encoding: 'latin1',
      maxBuffer: 1 << 28,
    },
  );
  const split = stdout.indexOf('\r\n\r\n');
  const head = stdout.slice(0, split).split('\r\n');
  return { status: Number(head[0]?.split(' ')[1]), head, body: stdout.slice(split + 4) };
}
