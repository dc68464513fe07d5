/** A socket that speaks the protocol of BuildKit at once, for clients that ask for no upgrade (the remote driver). */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';

const UPGRADE = 'POST /grpc HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n';
const HEAD_END = '\r\n\r\n';

export class GrpcBridge {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @param path of the socket that is made. @param engine that of the engine. */
  static async start(path: string, engine: string): Promise<GrpcBridge> {
    const server = createServer();
    const bridge = new GrpcBridge(server);
    server.on('connection', (client) => bridge.#join(client, connect(engine)));
    server.listen(path);
    await once(server, 'listening');
    return bridge;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #join(client: Socket, engine: Socket): void {
    for (const [socket, other] of [
      [client, engine],
      [engine, client],
    ] as const) {
      this.#sockets.add(socket);
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    let head = Buffer.alloc(0);
    const read = (piece: Buffer): void => {
      head = Buffer.concat([head, piece]);
      const end = head.indexOf(HEAD_END);
      if (end < 0) return;
      engine.off('data', read);
      client.write(head.subarray(end + HEAD_END.length));
      engine.pipe(client);
      client.pipe(engine);
    };
    engine.on('data', read);
    engine.write(UPGRADE);
  }
}
