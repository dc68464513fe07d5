/** Asks clients for more than files: passwords of registries, secrets, and agents that hold keys. */
import type { Duplex } from 'node:stream';
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import { decode, encode, PIECE_BYTES } from './grpc-messages.js';
import { BytesMessageSchema } from './proto/gen/common_pb.js';
import {
  CheckAgentRequestSchema,
  CredentialsRequestSchema,
  CredentialsResponseSchema,
  GetSecretRequestSchema,
  GetSecretResponseSchema,
} from './proto/gen/session_pb.js';
import { EmptySchema } from './proto/gen/common_pb.js';
import type { Session } from './session.js';

/** A client may ask its user, but not for ever. */
const ANSWER_MS = 60_000;
/** A process has this long to end its connection to an agent that has ended it. */
const LINGER_MS = 5_000;
const MAX_SECRET_BYTES = 500 * 1024;

export interface RegistryLogin {
  /** Empty where the secret is an identity token. */
  readonly username: string;
  readonly secret: string;
}

/** Resolves with the client's login for a registry; undefined when it has none. */
export async function credentials(
  { client }: Session,
  host: string,
  signal?: AbortSignal,
): Promise<RegistryLogin | undefined> {
  try {
    const { username, secret } = await client.unary(
      '/moby.filesync.v1.Auth/Credentials',
      [CredentialsRequestSchema, { host }],
      CredentialsResponseSchema,
      { timeoutMs: ANSWER_MS, ...(signal !== undefined && { signal }) },
    );
    return username === '' && secret === '' ? undefined : { username, secret };
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/** Resolves with a secret; undefined when the client has none of that name. @throws EngineError invalid if too long. */
export async function secret({ client }: Session, id: string, signal?: AbortSignal): Promise<Buffer | undefined> {
  try {
    const { data } = await client.unary(
      '/moby.buildkit.secrets.v1.Secrets/GetSecret',
      [GetSecretRequestSchema, { id }],
      GetSecretResponseSchema,
      { timeoutMs: ANSWER_MS, ...(signal !== undefined && { signal }) },
    );
    if (data.length > MAX_SECRET_BYTES) throw new EngineError('invalid', `invalid secret size ${data.length}`);
    return Buffer.from(data);
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/** Tells whether the client forwards an agent of this name. */
export async function hasAgent({ client }: Session, id: string, signal?: AbortSignal): Promise<boolean> {
  try {
    await client.unary('/moby.sshforward.v1.SSH/CheckAgent', [CheckAgentRequestSchema, { id }], EmptySchema, {
      timeoutMs: ANSWER_MS,
      ...(signal !== undefined && { signal }),
    });
    return true;
  } catch (error) {
    if (isAbsent(error) || isEngineError(error, 'internal')) return false;
    throw error;
  }
}

/** Joins a connection with the client's agent until either side ends it. */
export async function forwardAgent(
  { client }: Session,
  id: string,
  connection: Duplex,
  signal?: AbortSignal,
): Promise<void> {
  const call = client.open('/moby.sshforward.v1.SSH/ForwardAgent', {
    metadata: { 'buildkit.ssh.id': id },
    ...(signal !== undefined && { signal }),
  });
  connection.on('error', () => call.cancel());
  connection.once('close', () => call.end());
  const send = async (): Promise<void> => {
    for await (const piece of connection) await call.send(encode(BytesMessageSchema, { data: piece as Buffer }));
    call.end();
  };
  const sending = send().catch(() => call.cancel());
  try {
    for await (const message of call.messages()) {
      const { data } = decode(BytesMessageSchema, message);
      if (!connection.write(data)) await once(connection, 'drain');
    }
    // The process may still send; a connection that is closed with unread bytes would lose the last answer.
    connection.end();
    setTimeout(() => connection.destroy(), LINGER_MS).unref();
  } catch {
    // The process sees a connection that breaks.
    connection.destroy();
  } finally {
    await sending;
  }
}

/** Sends bytes to a client that keeps them in a file (outputs as an archive). */
export async function sendBytes(
  { client }: Session,
  metadata: Readonly<Record<string, string>>,
  bytes: AsyncIterable<Uint8Array>,
  options: { readonly signal?: AbortSignal; readonly sent?: (total: number) => void } = {},
): Promise<void> {
  const call = client.open('/moby.filesync.v1.FileSend/DiffCopy', {
    metadata,
    ...(options.signal !== undefined && { signal: options.signal }),
  });
  const send = async (): Promise<void> => {
    let total = 0;
    for await (const piece of bytes) {
      for (let at = 0; at < piece.length; at += PIECE_BYTES)
        await call.send(encode(BytesMessageSchema, { data: piece.subarray(at, at + PIECE_BYTES) }));
      options.sent?.((total += piece.length));
    }
    call.end();
  };
  let failure: unknown;
  const sending = send().catch((error: unknown) => {
    failure = error;
    call.cancel();
  });
  try {
    for await (const message of call.messages()) void message;
  } catch (error) {
    throw failure ?? error;
  } finally {
    call.end();
    await sending;
  }
}

/** Yields what a client has on its standard input, once. */
export async function* pulledBytes(
  { client }: Session,
  path: string,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const call = client.open('/moby.upload.v1.Upload/Pull', {
    metadata: { urlpath: path, urlhost: 'buildkit-session' },
    ...(signal !== undefined && { signal }),
  });
  for await (const message of call.messages()) yield decode(BytesMessageSchema, message).data;
}

function isAbsent(error: unknown): boolean {
  return isEngineError(error, 'not-found') || isEngineError(error, 'not-implemented');
}

async function once(stream: Duplex, event: string): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = (): void => {
      stream.off(event, done);
      stream.off('close', done);
      resolve();
    };
    stream.on(event, done);
    stream.on('close', done);
  });
}
