/**
 * `engined dial-stdio`: joins its input and output with the socket of a daemon. `docker -H ssh://HOST` runs it on HOST,
 * by way of the program `docker` there, for each of its connections. It needs no rights but those on the socket, and
 * none of the daemon's parts, so it begins quickly.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { getSystemErrorMap, parseArgs } from 'node:util';
import { DEFAULT_HOST, parseHost, type ListenAddress } from './config/hosts.js';
import { messageOf } from './errors/engine-error.js';

const USAGE = 'Usage:  engined dial-stdio [-H, --host unix://PATH|tcp://HOST:PORT]\n';

const READER_CHECK_MS = 1000;

/** The ends that are joined. */
export interface Ends {
  readonly input: NodeJS.ReadableStream;
  readonly output: NodeJS.WritableStream;
  /** The descriptor that `output` writes to. */
  readonly outputFd: number;
  readonly complaints: NodeJS.WritableStream;
}

/**
 * Joins both until the daemon has sent everything, or one of them fails; returns the exit code. When the input ends,
 * the daemon is told so and its answer is still passed on: `docker run -i` works like that.
 * @param environment `DOCKER_HOST` stands for the flag, as with the CLI, whose place this takes.
 */
export async function runDialStdio(
  words: readonly string[],
  environment: NodeJS.ProcessEnv,
  ends: Ends,
): Promise<number> {
  const fail = async (text: string): Promise<number> => {
    await written(ends.complaints, `${text}\n`);
    return 1;
  };
  let address: ListenAddress;
  try {
    const { values } = parseArgs({
      args: [...words],
      options: { host: { type: 'string', short: 'H' }, help: { type: 'boolean', short: 'h' } },
    });
    if (values.help === true) {
      await written(ends.output, USAGE);
      return 0;
    }
    address = parseHost(values.host ?? (environment['DOCKER_HOST'] || DEFAULT_HOST), { tls: false });
    if (address.kind === 'fd') throw new Error('fd:// is an address to listen on, not to connect to');
  } catch (error) {
    return fail(`engined dial-stdio: ${messageOf(error)}`);
  }
  const socket =
    address.kind === 'unix'
      ? connect({ path: address.path, allowHalfOpen: true })
      : connect({ host: address.host, port: address.port, allowHalfOpen: true });
  try {
    await once(socket, 'connect');
  } catch (error) {
    // These are the words of the CLI, which people search for.
    return fail(`failed to open the raw stream connection: dial ${nameOf(address)}: connect: ${reasonOf(error)}`);
  }
  return join(socket, ends);
}

async function join(socket: Socket, { input, output, outputFd }: Ends): Promise<number> {
  // When the input breaks, the client is gone: so the daemon shall not wait for more of it.
  input.on('error', () => socket.destroy());
  output.on('error', () => socket.destroy());
  input.pipe(socket);
  socket.pipe(output, { end: false });
  input.once('end', () => void endWithReader(socket, outputFd));
  try {
    await finished(socket, { writable: false });
    await written(output, '');
    return 0;
  } catch {
    return 1;
  }
}

/**
 * Ends the connection when nobody reads the output any more. The end of the input does not say whether the client has
 * died or only has nothing more to send, and a command that prints nothing may run for days.
 */
async function endWithReader(socket: Socket, outputFd: number): Promise<void> {
  const { hasReaderLeft } = await import('./sys/files/reader-left.js');
  while (!socket.closed) {
    if (hasReaderLeft(outputFd)) socket.destroy();
    await sleep(READER_CHECK_MS, undefined, { ref: false });
  }
}

/** Writes a text, and waits until it and all before it are handed over. */
function written(stream: NodeJS.WritableStream, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

function nameOf(address: Exclude<ListenAddress, { kind: 'fd' }>): string {
  return address.kind === 'unix' ? `unix ${address.path}` : `tcp ${address.host}:${address.port}`;
}

function reasonOf(error: unknown): string {
  const errno = error instanceof Error && 'errno' in error ? Number(error.errno) : undefined;
  return getSystemErrorMap().get(errno ?? 0)?.[1] ?? messageOf(error);
}
