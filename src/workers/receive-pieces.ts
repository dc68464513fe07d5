/** Receives the bytes of a client in the thread that wants them: from its socket, or from `sendPieces`. */
import type { MessagePort } from 'node:worker_threads';
import { cancelled } from '../errors/engine-error.js';
import type { SocketBody } from '../ports/archives.js';
import { SLOT_BYTES } from '../storage/send-pieces.js';
import { type PieceMemory, readSocketBody } from './socket-body.js';

type Message = SocketBody | SharedArrayBuffer | number | null;

/**
 * Returns the bytes in pieces, each of which is lent until the next one is asked for: that gives a slot back to
 * `sendPieces`. The first message may be a SocketBody. It listens at once, though bytes are read when they are asked
 * for.
 * @param memory gets what is read from a socket. Default: a buffer.
 * @throws EngineError cancelled when the port is closed before the end.
 */
export function receivePieces(port: MessagePort, memory?: PieceMemory): AsyncGenerator<Buffer> {
  const queue: Message[] = [];
  let isClosed = false;
  let wake: (() => void) | undefined;
  port.on('message', (message: Message) => {
    queue.push(message);
    wake?.();
  });
  port.on('close', () => {
    isClosed = true;
    wake?.();
  });
  const next = async (): Promise<Message> => {
    for (;;) {
      const message = queue.shift();
      if (message !== undefined) return message;
      if (isClosed) throw cancelled('the archive was not sent to its end');
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  return pieces(port, next, memory);
}

async function* pieces(
  port: MessagePort,
  next: () => Promise<Message>,
  socketMemory: PieceMemory | undefined,
): AsyncGenerator<Buffer> {
  const first = (await next()) as SharedArrayBuffer | SocketBody;
  if ('fd' in first) {
    yield* readSocketBody(first, socketMemory);
    return;
  }
  const memory = first;
  for (let at = 0; ; at = (at + SLOT_BYTES) % memory.byteLength) {
    const length = (await next()) as number | null;
    if (length === null) return;
    yield Buffer.from(memory, at, length);
    port.postMessage(0, []);
  }
}
