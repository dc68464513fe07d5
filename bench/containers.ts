/** The API calls that measures make, over the socket, a connection each. */
import type { Engine } from '../test/support/engine.js';
import { callJson } from '../test/support/http.js';

export interface ContainerChoice {
  readonly image: string;
  readonly command: readonly string[];
  readonly network?: 'none' | 'bridge';
  /** Publishes a port on one of the host's ephemeral ones. */
  readonly publishes?: boolean;
}

export async function createContainer(
  engine: Engine,
  { image, command, network, publishes }: ContainerChoice,
): Promise<string> {
  const ports = publishes ? { ExposedPorts: { '80/tcp': {} } } : {};
  const json = {
    Image: image,
    Cmd: command,
    ...ports,
    HostConfig: { ...(network === undefined ? {} : { NetworkMode: network }), PublishAllPorts: publishes === true },
  };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json });
  return Id;
}

export async function startContainer(engine: Engine, id: string): Promise<void> {
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`);
}

/** Resolves when it has ended. Throws when it failed: a measure of failures is none. */
export async function waitContainer(engine: Engine, id: string): Promise<void> {
  const { StatusCode } = await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${id}/wait`);
  if (StatusCode !== 0) throw new Error(`container ${id} ended with ${StatusCode}`);
}

export async function removeContainer(engine: Engine, id: string): Promise<void> {
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`);
}

/** Creates, starts, waits for and removes one container. */
export async function lifeOfContainer(engine: Engine, choice: ContainerChoice): Promise<void> {
  const id = await createContainer(engine, choice);
  await startContainer(engine, id);
  await waitContainer(engine, id);
  await removeContainer(engine, id);
}

/** Runs `count` actions, at most `width` at once. */
export async function atOnce(count: number, width: number, action: () => Promise<unknown>): Promise<void> {
  let left = count;
  const lane = async (): Promise<void> => {
    while (left-- > 0) await action();
  };
  await Promise.all(Array.from({ length: width }, lane));
}
