/** Exec: additional processes in running containers. */
import { messageOf } from '../../errors/engine-error.js';
import type { ContainerDirectory } from '../../actors/container/directory.js';
import { requireRunning, type ExecDirectory } from '../../actors/exec/directory.js';
import type { TerminalSize } from '../../actors/exec/exec.messages.js';
import type { ContainerServices } from '../../actors/container/services.js';
import { DetachScanner } from '../../logs/attach/detach-keys.js';
import { frame } from '../../logs/attach/stdcopy.js';
import { boolean, list, nullable, object, string, unsigned } from '../api/decode.js';
import { detachKeys, execView } from '../api/exec-view.js';
import { copyInput } from '../copy-input.js';
import type { Exchange } from '../exchange.js';
import { endWithClient } from '../gone-client.js';
import { ONCE, route, type Route } from '../route.js';
import { streamType } from './container-streams.js';
import { dimensions } from './containers.js';

const createBody = object({
  AttachStdin: boolean(),
  AttachStdout: boolean(),
  AttachStderr: boolean(),
  Tty: boolean(),
  Cmd: list(string()),
  Env: list(string()),
  Privileged: boolean(),
  User: string(),
  WorkingDir: string(),
  DetachKeys: string(),
  ConsoleSize: nullable(list(unsigned(32))),
});

const startBody = object({ Detach: boolean(), Tty: boolean(), ConsoleSize: nullable(list(unsigned(32))) });

export interface ExecRouteDeps {
  readonly containers: ContainerDirectory;
  readonly services: ContainerServices;
  readonly execs: ExecDirectory;
}

export function execRoutes(deps: ExecRouteDeps): Route[] {
  const { containers, execs } = deps;
  return [
    route('POST', '/containers/{name...}/exec', (x) => create(x, deps), { retry: ONCE }),

    route('POST', '/exec/{id}/start', (x) => start(x, deps), { hijack: 'after-body', retry: ONCE }),

    route('POST', '/exec/{id}/resize', async (x) => {
      const size = dimensions(x);
      const container = containers.find(execs.find(x.param('id')).containerId);
      requireRunning(container, container.id);
      await execs.resize(x.param('id'), size);
      x.sendEmpty(200);
    }),

    route('GET', '/exec/{id}/json', (x) => x.sendJson(200, execView(execs.find(x.param('id'))))),
  ];
}

async function create(x: Exchange, { containers, execs }: ExecRouteDeps): Promise<void> {
  const body = createBody.decode(await x.json<unknown>(), '');
  detachKeys(body.DetachKeys);
  const container = containers.find(x.param('name'));
  requireRunning(container, x.param('name'));
  await execs.checkUser(container, body.User);
  const record = execs.create(container, {
    ...body,
    ConsoleSize: x.atLeast(1, 42) ? pair(body.ConsoleSize) : null,
  });
  x.sendJson(201, { Id: record.id });
}

async function start(x: Exchange, { containers, services, execs }: ExecRouteDeps): Promise<void> {
  const body = startBody.decode((await x.optionalJson<unknown>()) ?? {}, '');
  const record = execs.find(x.param('id'));
  const container = containers.find(record.containerId);
  requireRunning(container, container.id);
  const tty = record.config.Tty;
  const terminal = {
    tty,
    size: size((x.atLeast(1, 42) && body.Tty ? pair(body.ConsoleSize) : null) ?? record.config.ConsoleSize),
  };
  if (body.Detach) {
    await execs.start(record.id, terminal);
    x.sendEmpty(200);
    return;
  }
  const keys = detachKeys(record.config.DetachKeys);
  // The client that reads says whether it takes the output as it is; another client may have made the exec.
  const isRaw = body.Tty;
  const socket = await x.hijack({ contentType: streamType(x, isRaw), commonHeaders: true });
  socket.on('error', () => socket.destroy());
  const leave = execs
    .hub(record.id)
    .subscribe({ stdout: record.config.AttachStdout, stderr: record.config.AttachStderr, multiplexed: !isRaw }, socket);
  socket.once('close', leave);
  try {
    await execs.start(record.id, terminal);
  } catch (error) {
    // The head has been sent, so a failure can only be told inside the stream.
    leave();
    const text = Buffer.from(`${messageOf(error)}\r\n`);
    socket.end(isRaw ? text : Buffer.concat(frame('stdout', text)));
    return;
  }
  endWithClient(socket);
  const stdin = record.config.AttachStdin ? execs.stdin(record.id) : undefined;
  if (!stdin) {
    socket.resume();
    return;
  }
  copyInput(socket, stdin, tty ? new DetachScanner(keys) : undefined, {
    onDetach: () => {
      services.emit('exec_detach', container, { execID: record.id });
      leave();
      socket.end();
    },
    onEnd: () => {
      if (tty) {
        leave();
        socket.end();
      } else void execs.closeStdin(record);
    },
  });
}

function pair(values: readonly number[] | null): readonly [number, number] | null {
  return values && values.length >= 2 ? [values[0] ?? 0, values[1] ?? 0] : null;
}

function size(heightWidth: readonly [number, number] | null): TerminalSize | undefined {
  return heightWidth && heightWidth[0] > 0 ? { height: heightWidth[0], width: heightWidth[1] } : undefined;
}
