/** Decompresses with a program, for formats that Node has no decoder for. */
import { spawn } from 'node:child_process';
import { Duplex } from 'node:stream';
import { dataLoss, unavailable } from '../errors/engine-error.js';

/** The end of what a program may say about its failure. */
const MAX_ERROR_CHARS = 500;

/**
 * A stream through a program that reads compressed bytes and writes plain ones: `xz -dc`. Destroying it ends the
 * program. Fails with `unavailable` when the program is not installed, and `data-loss` with what it said when it
 * failed.
 */
export function filterProcess(program: string, args: readonly string[]): Duplex {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  let wake: (() => void) | undefined;
  const proceed = (): void => {
    const callback = wake;
    wake = undefined;
    callback?.();
  };
  const stream = new Duplex({
    write(chunk: Buffer, _encoding, callback) {
      // The caller may use the memory of the chunk again then.
      if (child.exitCode !== null) return callback();
      wake = callback;
      child.stdin.write(chunk, proceed);
    },
    final(callback) {
      child.stdin.end(callback);
    },
    read: () => void child.stdout.resume(),
    destroy(error, callback) {
      child.kill('SIGKILL');
      proceed();
      callback(error);
    },
  });
  child.on('error', (error: NodeJS.ErrnoException) =>
    stream.destroy(
      error.code === 'ENOENT'
        ? unavailable(`the archive is compressed with ${program}, which is not installed`, {
            code: 'NO_DECOMPRESSOR',
            cause: error,
          })
        : error,
    ),
  );
  // A program that ends early says why on stderr; the broken pipe is only the consequence.
  child.stdin.on('error', proceed);
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-MAX_ERROR_CHARS)));
  child.stdout.on('data', (chunk: Buffer) => {
    if (!stream.push(chunk)) child.stdout.pause();
  });
  child.once('close', (code, signal) => {
    proceed();
    if (code === 0) stream.push(null);
    else if (!stream.destroyed)
      stream.destroy(
        dataLoss(`error while decompressing: ${said.trim() || `${program} ended with ${code ?? signal}`}`, {
          code: 'BAD_COMPRESSION',
        }),
      );
  });
  return stream;
}
