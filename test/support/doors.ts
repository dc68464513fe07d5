/** Daemons with the doors by which clients come in: a unix socket, plain TCP, and TLS that asks for certificates. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect as connectPlain, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { Authority, tlsFlags } from './certificates.js';
import type { Cleanup } from './cleanup.js';
import { Engine } from './engine.js';
import { engined } from './engined.js';
import { callJson } from './http.js';
import { SEEDED_IMAGE, withImage } from './seed.js';

export interface Door {
  readonly name: 'unix' | 'tcp' | 'tls';
  /** The daemon behind it. */
  readonly engine: Engine;
  readonly image: string;
  /** Opens a connection of which each direction can be ended alone. */
  connect(): Promise<Socket>;
  /** For the docker CLI, in front of the command. */
  readonly cliArgs: readonly string[];
}

/** Opens all of them; `cleanup` ends the daemons and checks that nothing is left. */
export async function openDoors(cleanup: Cleanup): Promise<readonly Door[]> {
  const dir = await mkdtemp(join(tmpdir(), 'doors-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  const image = SEEDED_IMAGE;
  const start = async (args: readonly string[]): Promise<{ engine: Engine; port: number }> => {
    // Two daemons at a time that share a firewall would each find the other's rules left behind.
    const engine = await Engine.start(
      await withImage(
        engined({ args: ['--host', 'tcp://127.0.0.1:0', '--iptables=false', '--ip6tables=false', ...args] }),
      ),
    );
    cleanup.add(() => engine.close());
    return { engine, port: await engine.tcpPort() };
  };
  const ca = new Authority(dir, 'ca');
  const [server, client] = [ca.issueServer(), ca.issue('alice')];
  const plain = await start([]);
  const secured = await start(tlsFlags(ca.cert, server));
  const unixPath = plain.engine.socketPath;
  return [
    {
      name: 'unix',
      engine: plain.engine,
      image,
      cliArgs: ['-H', `unix://${unixPath}`],
      connect: () => connected(connectPlain({ path: unixPath, allowHalfOpen: true }), 'connect'),
    },
    {
      name: 'tcp',
      engine: plain.engine,
      image,
      cliArgs: ['-H', `tcp://127.0.0.1:${plain.port}`],
      connect: () => connected(connectPlain({ host: '127.0.0.1', port: plain.port, allowHalfOpen: true }), 'connect'),
    },
    {
      name: 'tls',
      engine: secured.engine,
      image,
      cliArgs: ['-H', `tcp://127.0.0.1:${secured.port}`, ...tlsFlags(ca.cert, client)],
      connect: () => {
        const socket = connectPlain({ host: '127.0.0.1', port: secured.port, allowHalfOpen: true });
        const files = { ca: readFileSync(ca.cert), cert: readFileSync(client.cert), key: readFileSync(client.key) };
        return connected(connectTls({ socket, ...files }), 'secureConnect');
      },
    },
  ];
}

async function connected(socket: Socket, event: 'connect' | 'secureConnect'): Promise<Socket> {
  await once(socket, event);
  return socket;
}

/** Starts a container behind a door that runs until `cleanup`; gives its ID. */
export async function startWeb({ engine, image }: Door, cleanup: Cleanup): Promise<string> {
  const json = { Image: image, Cmd: ['sleep', '100000'], HostConfig: { NetworkMode: 'none' } };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  cleanup.add(() => callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`, {}, 204));
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
  return Id;
}
