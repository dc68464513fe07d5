/** `engined upgrade`: tells the running daemon to hand over to this program, and waits until it has. */
import { connect } from 'node:net';
import { realpathSync } from 'node:fs';
import type { LoadedConfig } from '../config/settings.js';
import { messageOf } from '../errors/engine-error.js';
import { handoverSocket } from './predecessor.js';

/** Returns the exit code. */
export async function orderUpgrade(
  { config }: LoadedConfig,
  program: string,
  print: (line: string) => void,
  complain: (line: string) => void,
): Promise<number> {
  const path = handoverSocket(config.execRoot);
  try {
    const { done = false, error = 'the daemon has ended' } = await ask(path, { program: realpathSync(program) });
    if (done) print('the new daemon serves');
    else complain(`engined upgrade: ${error}`);
    return done ? 0 : 1;
  } catch (error) {
    complain(`engined upgrade: no daemon takes orders at ${path}: ${messageOf(error)}`);
    return 1;
  }
}

function ask(path: string, order: object): Promise<{ readonly done?: boolean; readonly error?: string }> {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(path, () => void socket.write(`${JSON.stringify(order)}\n`));
    socket.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    socket.on('error', reject);
    socket.on('close', () => {
      try {
        resolve(text === '' ? {} : (JSON.parse(text) as { done?: boolean; error?: string }));
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  });
}
