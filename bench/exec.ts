/**
 * exec of /bin/true in a running container: created, started and attached to, read to its end, its exit code asked for.
 */
import { RawConnection, callJson } from '../test/support/http.js';
import type { Engine } from '../test/support/engine.js';
import { createContainer, startContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const TIMES = 15;
const BODY = JSON.stringify({ Detach: false, Tty: false });

/** Runs /bin/true in a running container; throws when it fails. */
export async function execTrue(engine: Engine, container: string): Promise<void> {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${container}/exec`, {
    json: { Cmd: ['/bin/true'], AttachStdout: true, AttachStderr: true },
  });
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(
    `POST /exec/${Id}/start HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`,
  );
  await connection.readToEnd();
  connection.close();
  const { ExitCode } = await callJson<{ ExitCode: number }>(engine.socketPath, 'GET', `/exec/${Id}/json`);
  if (ExitCode !== 0) throw new Error(`exec ended with ${ExitCode}`);
}

export const exec: Measure = {
  name: 'exec',
  metrics: [{ name: 'exec of true', unit: 'ms', target: 0.8, moreIsBetter: false }],
  async prepare(engine, { image }) {
    const container = await createContainer(engine, { image, command: ['sleep', '100000'] });
    await startContainer(engine, container);
    await execTrue(engine, container);
    return async () => {
      const times: number[] = [];
      for (let index = 0; index < TIMES; index++) times.push(await timed(() => execTrue(engine, container)));
      return { 'exec of true': median(times) };
    };
  },
};
