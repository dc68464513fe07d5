/**
 * How a running daemon hands over to another program (`engined upgrade`). It starts the successor, which inherits its
 * environment, limits, log and control group. When that one is prepared, the daemon ends its requests, lets go of its
 * directories, and gives it the sockets. Until the successor serves, the daemon can go on by itself.
 */
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { isAbsolute, join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import { closeFd } from '../sys/files/fd.js';
import { listenOnUnix } from '../sys/net/listen-socket.js';
import { MessageSocket } from '../sys/net/message-socket.js';
import { socketPair } from '../sys/net/socket-pair.js';
import { GO, HANDOVER_VARIABLE, PREPARED, SERVES } from './successor.js';

const MAX_REQUEST_BYTES = 8192;
/** Sockets for one message; the kernel takes up to 253. */
const BATCH = 128;
const FIRST_FD = 3;

/** Returns the path of the socket on which a daemon takes the order to hand over. */
export function handoverSocket(execRoot: string): string {
  return join(execRoot, 'upgrade.sock');
}

export interface PredecessorOptions {
  readonly execRoot: string;
  readonly log: Logger;
  /** Set when a service manager watches the daemon's process, which then cannot become another one. */
  readonly isManaged: boolean;
  /** Ends the daemon's work, but leaves its containers. */
  readonly onPrepared: () => void;
}

interface Successor {
  readonly channel: MessageSocket;
  readonly client: Socket;
  kill(): void;
}

export class Predecessor {
  readonly #options: PredecessorOptions;
  #server: Server | undefined;
  #successor: Successor | undefined;
  #isPrepared = false;

  constructor(options: PredecessorOptions) {
    this.#options = options;
  }

  /** A successor is prepared, and waits for `complete`. */
  get isHandingOver(): boolean {
    return this.#isPrepared;
  }

  /** Takes orders from now on: only those of root, because the file is nobody else's. */
  open(): void {
    const path = handoverSocket(this.#options.execRoot);
    rmSync(path, { force: true });
    const server = createServer((client) => this.#serve(client));
    server.on('error', (error) => this.#options.log.warn({ err: error }, 'no upgrade without a restart is possible'));
    server.listen({ fd: listenOnUnix(path, 0o600) });
    this.#server = server;
  }

  close(): void {
    if (this.#server === undefined) return;
    this.#server.close();
    this.#server = undefined;
    rmSync(handoverSocket(this.#options.execRoot), { force: true });
  }

  /**
   * Gives everything to the successor; call it when nothing of this daemon is left.
   * @returns true when the successor serves; false when it has failed, and this daemon has to go on.
   */
  async complete(sockets: ReadonlyMap<string, number>): Promise<boolean> {
    const successor = this.#successor;
    if (successor === undefined) return false;
    const { channel, client } = successor;
    try {
      const names = [...sockets.keys()];
      for (let at = 0; at < names.length; at += BATCH) {
        const some = names.slice(at, at + BATCH);
        await channel.sendInTime(
          some.join('\n'),
          some.map((name) => sockets.get(name) ?? -1),
        );
      }
      await channel.sendInTime(GO, []);
      const answer = await channel.next();
      if (answer?.bytes.toString() === SERVES) {
        client.end('{"done":true}\n');
        return true;
      }
    } catch (error) {
      this.#options.log.error({ err: error }, 'the successor cannot be given anything');
    }
    this.#fail(successor, 'the new daemon has ended before it served: this one goes on. The log says why');
    return false;
  }

  #serve(client: Socket): void {
    let text = '';
    client.on('error', () => undefined);
    client.setEncoding('utf8').on('data', (piece: string) => {
      text += piece;
      const end = text.indexOf('\n');
      if (end < 0 && text.length <= MAX_REQUEST_BYTES) return;
      client.removeAllListeners('data').resume();
      this.#begin(client, text.slice(0, Math.max(0, end))).catch((error: unknown) =>
        client.end(`${JSON.stringify({ error: messageOf(error) })}\n`),
      );
    });
  }

  async #begin(client: Socket, request: string): Promise<void> {
    const { log, isManaged, onPrepared } = this.#options;
    const { program } = JSON.parse(request) as { readonly program?: unknown };
    if (typeof program !== 'string' || !isAbsolute(program)) throw invalid('the order names no program');
    if (isManaged)
      throw invalid('a service manager runs this daemon: restart it there, which keeps its sockets and containers');
    if (this.#successor !== undefined) throw invalid('another successor is being started');
    log.info({ program }, 'a successor is started');
    const successor = start(program, client);
    this.#successor = successor;
    // The order is taken back when its client leaves.
    client.once('close', () => {
      if (this.#successor === successor) successor.kill();
    });
    const answer = await successor.channel.next();
    if (answer?.bytes.toString() !== PREPARED)
      return this.#fail(successor, 'the new daemon cannot start: this one goes on. The log says why');
    this.#isPrepared = true;
    log.info({}, 'handing over');
    onPrepared();
  }

  #fail(successor: Successor, message: string): void {
    this.#successor = undefined;
    this.#isPrepared = false;
    successor.kill();
    successor.channel.close();
    this.#options.log.error({}, message);
    successor.client.end(`${JSON.stringify({ error: message })}\n`);
  }
}

/** Starts a program with the command line of this process. */
function start(program: string, client: Socket): Successor {
  const [ours, theirs] = socketPair('messages');
  try {
    const child = spawn(program, process.argv.slice(2), {
      detached: true,
      stdio: ['inherit', 'inherit', 'inherit', theirs],
      env: { ...process.env, [HANDOVER_VARIABLE]: String(FIRST_FD) },
    });
    // The end of the channel tells as much.
    child.on('error', () => undefined);
    child.unref();
    return { channel: new MessageSocket(ours), client, kill: () => void child.kill('SIGKILL') };
  } finally {
    closeFd(theirs);
  }
}
