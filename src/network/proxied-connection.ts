/**
 * A connection through the userland proxy: a client and a server, two sockets whose bytes are passed on both ways.
 * Another process can go on with it at any moment, and neither of the two notices.
 */
import { connect, Socket } from 'node:net';
import { closeFd, duplicateFd } from '../sys/files/fd.js';

export interface ProxyTarget {
  readonly host: string;
  readonly port: number;
}

/** A connection that one process has left and the next one goes on with. */
export interface MovedConnection {
  /** Descriptors, which belong to whoever has this. */
  readonly client: number;
  /** Absent when the container had not taken the connection. */
  readonly server: number | undefined;
  /** Bytes that were read from one and not written to the other. */
  readonly toServer: Buffer;
  readonly toClient: Buffer;
}

export interface ConnectionOwner {
  /** The container has taken the connection. Called once at most. */
  taken(): void;
  /** Called once; also of a connection that was never taken. */
  ended(): void;
}

const NOTHING: Buffer = Buffer.alloc(0);

export class ProxiedConnection {
  readonly #client: Socket;
  readonly #server: Socket;
  #ways: { readonly toServer: Way; readonly toClient: Way } | undefined;
  /** Bytes that an earlier process has read from the client of a connection that is not taken yet. */
  readonly #unsent: Buffer;

  /** @param client a socket that nothing was read from, or what another process has left. */
  constructor(client: Socket | MovedConnection, target: ProxyTarget, owner: ConnectionOwner) {
    const isNew = client instanceof Socket;
    this.#client = isNew ? client : socketOf(client.client);
    const earlier = isNew ? undefined : client.server;
    this.#server = earlier === undefined ? connect({ ...target, allowHalfOpen: true }) : socketOf(earlier);
    let open = 2;
    for (const [one, other] of [
      [this.#client, this.#server],
      [this.#server, this.#client],
    ] as const) {
      // One that has ended well has said so to the other, which may still have something to write.
      one.on('error', () => other.destroy());
      one.on('close', () => {
        open--;
        if (open === 0) owner.ended();
      });
    }
    const begin = (toServer: Buffer, toClient: Buffer): void => {
      this.#ways = {
        toServer: new Way(this.#client, this.#server, toServer),
        toClient: new Way(this.#server, this.#client, toClient),
      };
      owner.taken();
    };
    const [toServer, toClient] = isNew ? [NOTHING, NOTHING] : [client.toServer, client.toClient];
    if (earlier === undefined) this.#server.on('connect', () => begin(toServer, toClient));
    else begin(toServer, toClient);
    this.#unsent = toServer;
  }

  /**
   * Stops at once, and returns everything that the next process needs; undefined when the connection is over, or cut.
   * The ends of what the two have sent are not lost, because the kernel tells them to every reader.
   */
  move(): MovedConnection | undefined {
    const [client, server] = [this.#client, this.#server];
    if (client.destroyed || server.destroyed) return undefined;
    const left = {
      toServer: this.#ways?.toServer.stop() ?? Buffer.concat([this.#unsent, buffered(client)]),
      toClient: this.#ways?.toClient.stop() ?? NOTHING,
    };
    const copies: number[] = [];
    try {
      for (const socket of this.#ways ? [client, server] : [client]) copies.push(duplicateFd(handleOf(socket).fd));
      const [copy = -1, serverCopy] = copies;
      return { ...left, client: copy, server: serverCopy };
    } catch {
      // There are no more descriptors. The end of this connection gives some to the others.
      for (const copy of copies) closeFd(copy);
      return undefined;
    } finally {
      // This closes our copies only.
      client.destroy();
      server.destroy();
    }
  }
}

/** One direction. No further byte is read while one waits to be written, so what is under way is known. */
class Way {
  readonly #from: Socket;
  readonly #to: Socket;
  /** The piece of which a part waits to be written. */
  #piece: Buffer = NOTHING;

  /** @param left goes first. */
  constructor(from: Socket, to: Socket, left: Buffer) {
    this.#from = from;
    this.#to = to;
    from.on('data', (piece: Buffer) => this.#send(piece));
    from.on('end', () => to.end());
    if (left.length > 0) this.#send(left);
    if (this.#piece.length === 0) from.resume();
  }

  #send(piece: Buffer): void {
    this.#to.write(piece, this.#onWritten);
    // Mostly the kernel has taken everything.
    if (this.#to.writableLength === 0) return;
    this.#piece = piece;
    this.#from.pause();
  }

  readonly #onWritten = (): void => {
    if (this.#piece.length === 0 || this.#to.writableLength > 0) return;
    this.#piece = NOTHING;
    this.#from.resume();
  };

  /** Returns what was read and not written. Both sockets must be closed in the same turn of the event loop. */
  stop(): Buffer {
    // Reading would give it to the listener as well.
    this.#from.removeAllListeners('data').pause();
    const unwritten = this.#piece.subarray(this.#piece.length - handleOf(this.#to).writeQueueSize);
    return Buffer.concat([unwritten, buffered(this.#from)]);
  }
}

/** Takes what the socket has read and told nobody. One that has a descriptor from the beginning reads at once. */
function buffered(socket: Socket): Buffer {
  return (socket.read() as Buffer | null) ?? NOTHING;
}

function socketOf(fd: number): Socket {
  return new Socket({ fd, allowHalfOpen: true, readable: true, writable: true });
}

/** Node's handle of an open socket has no public name, but the properties are as old as it is. */
function handleOf(socket: Socket): { readonly fd: number; readonly writeQueueSize: number } {
  return (socket as unknown as { readonly _handle: { readonly fd: number; readonly writeQueueSize: number } })._handle;
}
