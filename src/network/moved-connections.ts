/**
 * Connections on their way to the next process: one descriptor for all of them, so that a store has room for many. It
 * is the end of a pair of sockets, with a message for each connection that nobody has received yet.
 */
import { readSync, writeSync } from 'node:fs';
import { closeFd } from '../sys/files/fd.js';
import { growBuffer } from '../sys/net/buffer-size.js';
import { receiveDescriptors, sendDescriptors } from '../sys/net/descriptor-messages.js';
import { socketPair } from '../sys/net/socket-pair.js';
import { memoryFile } from '../sys/process/memory-file.js';
import type { MovedConnection } from './proxied-connection.js';

/** The kernel counts about a thousand bytes for a message. */
const QUEUE_BYTES = 16 << 20;
const MESSAGE_BYTES = 256;

/** Says what the descriptors of a message are: client, server, and a file with the bytes. */
interface Message {
  readonly hasServer: boolean;
  readonly toServer: number;
  readonly toClient: number;
}

/**
 * Puts connections into one descriptor, which belongs to the caller. Those that there is no room for are cut.
 * @throws EngineError code EMFILE, ENFILE.
 */
export function packConnections(connections: readonly MovedConnection[]): number {
  const [into, queue] = socketPair('messages');
  try {
    growBuffer(into, 'send', QUEUE_BYTES);
    for (const connection of connections) put(into, connection);
    return queue;
  } finally {
    closeFd(into);
  }
}

function put(into: number, { client, server, toServer, toClient }: MovedConnection): void {
  const fds = server === undefined ? [client] : [client, server];
  try {
    if (toServer.length + toClient.length > 0) {
      const file = memoryFile('unwritten bytes');
      fds.push(file);
      let at = 0;
      for (const bytes of [toServer, toClient]) at += writeSync(file, bytes, 0, bytes.length, at);
    }
    const message: Message = {
      hasServer: server !== undefined,
      toServer: toServer.length,
      toClient: toClient.length,
    };
    sendDescriptors(into, Buffer.from(JSON.stringify(message)), fds);
  } catch {
    // The system has no room for it, and it ends when its descriptors are closed.
  } finally {
    for (const fd of fds) closeFd(fd);
  }
}

/** Takes connections out of a descriptor, and closes it. */
export function unpackConnections(queue: number): MovedConnection[] {
  const connections: MovedConnection[] = [];
  try {
    for (;;) {
      const received = receiveDescriptors(queue, MESSAGE_BYTES);
      if (received === undefined || received.bytes.length === 0) return connections;
      const { hasServer, toServer, toClient } = JSON.parse(received.bytes.toString()) as Message;
      const [client = -1, second = -1, third = -1] = received.fds;
      const file = hasServer ? third : second;
      connections.push({
        client,
        server: hasServer ? second : undefined,
        toServer: readPart(file, 0, toServer),
        toClient: readPart(file, toServer, toClient),
      });
      if (file !== -1) closeFd(file);
    }
  } catch {
    // This process may have no more descriptors; it goes on with those connections that it has got.
    return connections;
  } finally {
    closeFd(queue);
  }
}

function readPart(file: number, at: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  if (length > 0) readSync(file, bytes, 0, length, at);
  return bytes;
}
