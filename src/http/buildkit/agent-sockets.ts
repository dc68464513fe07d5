/** Sockets of this host behind which the agents of clients answer, for steps that mount them. */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { internal } from '../../errors/engine-error.js';
import type { SshAgent } from '../../ports/build.js';
import type { Session } from './session.js';
import { forwardAgent, hasAgent } from './session-services.js';

/** More connections at once are refused. */
const MAX_CONNECTIONS = 64;

export class AgentSockets {
  readonly #root: string;

  /** @param root a short path, because that of a socket must be; it is emptied by whoever made it. */
  constructor(root: string) {
    this.#root = root;
  }

  /** @throws EngineError when the client has no agent of this name. */
  async open(session: Session, id: string): Promise<SshAgent> {
    if (!(await hasAgent(session, id))) throw internal(`unset ssh forward key ${id}`);
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    const socketPath = join(this.#root, `${randomBytes(6).toString('hex')}.sock`);
    const connections = new Set<Socket>();
    const server = createServer({ allowHalfOpen: true }, (connection) => {
      connections.add(connection);
      connection.once('close', () => connections.delete(connection));
      void forwardAgent(session, id, connection).catch(() => connection.destroy());
    });
    server.maxConnections = MAX_CONNECTIONS;
    server.listen(socketPath);
    await once(server, 'listening');
    await chmod(socketPath, 0o600);
    const close = async (): Promise<void> => {
      server.close();
      for (const connection of connections) connection.destroy();
      await rm(socketPath, { force: true });
    };
    return { socketPath, close };
  }
}
