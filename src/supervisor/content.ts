/** The content store of one containerd namespace, over gRPC. */
import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { dataLoss, internal, isEngineError } from '../errors/engine-error.js';
import type { Content, NewBlob } from '../ports/content.js';
import type { Digest } from '../ports/storage.js';
import type { BlobFiles } from './blob-files.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import { fromGrpc, isTaken } from './grpc-error.js';
import { ContainerdLeases } from './leases.js';
import {
  Content as ContentService,
  type Info,
  WriteAction,
  WriteContentRequestSchema,
  type WriteContentResponse,
} from '../ports/proto/gen/content_pb.js';

const TYPE = 'content';
/** A lease has these of writes that are not over. They do not expire while it holds them. */
const UNFINISHED = 'ingests';
/** A piece is encoded on the main thread. This many bytes take a fraction of a millisecond. */
const PIECE_BYTES = 256 << 10;

type BytesFrom = (offset: number) => AsyncIterable<Buffer>;

export class ContainerdContent implements Content {
  readonly #connection: GrpcConnection;
  #calls: UnaryClient<typeof ContentService> | undefined;
  readonly #leases: ContainerdLeases;
  #writes = 0;
  /** Resolves when writes may go on from what those before have left. */
  #settled: Promise<void> = Promise.resolve();

  /** @param files where the supervisor has the files of blobs, if it takes some there. */
  constructor(
    connection: GrpcConnection,
    private readonly files?: BlobFiles,
  ) {
    this.#connection = connection;
    this.#leases = new ContainerdLeases(connection);
  }

  /** Made when it is needed, as the one of leases. */
  get #service(): UnaryClient<typeof ContentService> {
    return (this.#calls ??= this.#connection.unary(ContentService));
  }

  async sizeOf(digest: Digest): Promise<number | undefined> {
    const info = await this.#find(digest);
    return info && Number(info.size);
  }

  async labelsOf(digest: Digest): Promise<Readonly<Record<string, string>>> {
    return (await this.#find(digest))?.labels ?? {};
  }

  async #find(digest: Digest): Promise<Info | undefined> {
    try {
      return (await this.#service.info({ digest })).info;
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }

  async *read(digest: Digest): AsyncGenerator<Buffer> {
    await this.#connection.ready();
    const { read } = ContentService.method;
    const call = this.#connection.serverStream(read, { digest });
    try {
      for await (const { data } of call) yield Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    } catch (error) {
      throw fromGrpc(error, read.name);
    } finally {
      call.cancel();
    }
  }

  async write(lease: string, blob: NewBlob, bytesFrom: BytesFrom): Promise<void> {
    this.#writes++;
    try {
      await this.#settled;
      const isResumed = await this.#attempt(lease, blob, bytesFrom);
      // The bytes of the attempt before may be what is wrong.
      if (isResumed === 'wrong after resuming' && (await this.#attempt(lease, blob, bytesFrom)) !== 'written')
        throw wrongBytes(blob);
    } catch (error) {
      if (!isTaken(error)) throw error;
      await this.#label(blob);
    } finally {
      this.#writes--;
    }
  }

  async offer(digest: Digest, path: string): Promise<void> {
    await this.files?.put(digest, path);
  }

  async unlabel(digest: Digest, names: readonly string[]): Promise<void> {
    try {
      // An empty label is none.
      await this.#label({ digest, labels: Object.fromEntries(names.map((name) => [name, ''])) });
    } catch (error) {
      if (!isEngineError(error, 'not-found')) throw error;
    }
  }

  async held(lease: string): Promise<readonly Digest[]> {
    return ((await this.#leases.held(lease, TYPE)) ?? []) as readonly Digest[];
  }

  letGo(lease: string, digests: readonly Digest[]): Promise<void> {
    return this.#leases.letGo(lease, TYPE, digests);
  }

  async letGoUnfinished(lease: string): Promise<boolean> {
    const names = (await this.#leases.held(lease, UNFINISHED)) ?? [];
    if (names.length === 0 || this.#writes > 0) return false;
    const done = this.#leases.letGo(lease, UNFINISHED, names);
    this.#settled = done.catch(() => undefined);
    await done;
    return true;
  }

  collect(): Promise<void> {
    return this.#leases.collect();
  }

  /**
   * Writes the blob, from where an attempt before has come to.
   * @throws EngineError data-loss for wrong bytes, conflict when the blob is there.
   */
  async #attempt(lease: string, blob: NewBlob, bytesFrom: BytesFrom): Promise<'written' | 'wrong after resuming'> {
    const { digest, sizeBytes, labels = {} } = blob;
    await this.#connection.ready();
    // Two data roots with one supervisor may bring the same blob at the same time.
    const ref = `${lease}-${digest}`;
    const stream = new WriteStream(this.#connection, lease, { ref, total: BigInt(sizeBytes), expected: digest });
    let begun = 0;
    try {
      begun = await stream.ask({ action: WriteAction.STAT });
      let offset = begun;
      if (begun <= sizeBytes)
        for await (const data of inPieces(bytesFrom(begun))) {
          if (offset + data.length > sizeBytes) throw wrongBytes(blob);
          offset = await stream.ask({ action: WriteAction.WRITE, offset: BigInt(offset), data });
        }
      if (offset !== sizeBytes) throw wrongBytes(blob);
      await stream.ask({ action: WriteAction.COMMIT, offset: BigInt(offset), labels });
      await stream.end();
      return 'written';
    } catch (error) {
      await stream.end();
      if (!isWrong(error)) throw error;
      await this.#service.abort({ ref });
      if (begun > 0) return 'wrong after resuming';
      throw wrongBytes(blob, error);
    }
  }

  async #label({ digest, labels = {} }: Pick<NewBlob, 'digest' | 'labels'>): Promise<void> {
    const paths = Object.keys(labels).map((name) => `labels.${name}`);
    if (paths.length > 0)
      await this.#service.update({ info: { digest, labels: { ...labels } }, updateMask: { paths } });
  }
}

/** One write: each message has one answer. */
class WriteStream {
  readonly #call;
  readonly #answers: AsyncIterator<WriteContentResponse>;

  constructor(
    connection: GrpcConnection,
    lease: string,
    private readonly always: { readonly ref: string; readonly total: bigint; readonly expected: Digest },
  ) {
    this.#call = connection.bidiStream(ContentService.method.write, lease);
    this.#answers = this.#call[Symbol.asyncIterator]() as AsyncIterator<WriteContentResponse>;
  }

  /** Returns the bytes that the supervisor has now. */
  async ask(message: MessageInitShape<typeof WriteContentRequestSchema>): Promise<number> {
    try {
      this.#call.write(create(WriteContentRequestSchema, { ...this.always, ...message }));
      const { value, done } = await this.#answers.next();
      if (done) throw internal('the supervisor ended the writing of content early');
      return Number(value.offset);
    } catch (error) {
      throw isEngineError(error) ? error : fromGrpc(error, ContentService.method.write.name);
    }
  }

  /** Resolves when the supervisor has ended the write too: until then it refuses another one of the same blob. */
  async end(): Promise<void> {
    this.#call.end();
    try {
      for (let isOver = false; !isOver;) isOver = (await this.#answers.next()).done === true;
    } catch {
      // It ended with an error, which whoever asked last was told of.
    }
  }
}

async function* inPieces(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
}

/** containerd refuses to commit what has another digest or size as something that is not in the right state. */
function isWrong(error: unknown): boolean {
  return isEngineError(error) && (error.code === WRONG_BYTES || (error.kind === 'conflict' && !isTaken(error)));
}

const WRONG_BYTES = 'DIGEST_MISMATCH';

function wrongBytes({ digest, sizeBytes }: NewBlob, cause?: unknown): Error {
  return dataLoss(`the bytes for ${digest} are not the ${sizeBytes} bytes of that digest`, {
    code: WRONG_BYTES,
    cause,
  });
}
