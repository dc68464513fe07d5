/** A directory of content that a client offers in its session, such as a cache in a directory of its own. */
import { dataLoss, EngineError, isEngineError } from '../../errors/engine-error.js';
import type { ContentSource } from '../../ports/build.js';
import type { Digest } from '../../ports/storage.js';
import type { MessageCall } from './grpc-client.js';
import { decode, encode } from './grpc-messages.js';
import {
  ReadContentRequestSchema,
  ReadContentResponseSchema,
  WriteAction,
  WriteContentRequestSchema,
  type WriteContentResponse,
  WriteContentResponseSchema,
} from '../../ports/proto/gen/content_pb.js';
import type { Session } from './session.js';

export interface ContentBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Opens the bytes; it is not called when the client has the blob. */
  readonly bytes: () => AsyncIterable<Uint8Array>;
}

const SERVICE = '/containerd.services.content.v1.Content';
/** A session may offer several directories. */
const STORE_ID = 'buildkit-attachable-store-id';

export class ClientContent implements ContentSource {
  constructor(
    private readonly session: () => Promise<Session>,
    private readonly storeId: string,
  ) {}

  /** Yields the bytes of a blob, which need not be those of its digest. @throws EngineError not-found */
  async *read(digest: Digest, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const call = await this.#open('Read', signal);
    await call.send(encode(ReadContentRequestSchema, { digest }));
    call.end();
    for await (const message of call.messages()) yield decode(ReadContentResponseSchema, message).data;
  }

  /** Writes a blob, which the client verifies. One that is there already is left as it is. */
  async write({ digest, sizeBytes, bytes }: ContentBlob, signal: AbortSignal): Promise<void> {
    const call = await this.#open('Write', signal);
    const answers = call.messages()[Symbol.asyncIterator]();
    const ask = async (
      request: Parameters<typeof encode<typeof WriteContentRequestSchema>>[1],
    ): Promise<WriteContentResponse> => {
      await call.send(encode(WriteContentRequestSchema, request));
      const { value, done } = await answers.next();
      if (done === true) throw dataLoss(`the client has not taken ${digest}`, { code: 'CONTENT_REFUSED' });
      return decode(WriteContentResponseSchema, value);
    };
    const whole = { ref: `engined-${digest}`, total: BigInt(sizeBytes), expected: digest };
    try {
      await ask({ action: WriteAction.STAT, ...whole });
      // Every write begins at 0: the rest of an earlier one may be anything.
      let offset = 0n;
      for await (const data of bytes()) {
        await ask({ action: WriteAction.WRITE, ...whole, offset, data });
        offset += BigInt(data.length);
      }
      await ask({ action: WriteAction.COMMIT, ...whole, offset });
    } catch (error) {
      if (!isEngineError(error, 'conflict')) throw error;
    } finally {
      call.cancel();
    }
  }

  async #open(method: string, signal: AbortSignal): Promise<MessageCall> {
    if (signal.aborted) throw new EngineError('cancelled', 'context canceled');
    const { client } = await this.session();
    return client.open(`${SERVICE}/${method}`, { metadata: { [STORE_ID]: this.storeId }, signal });
  }
}
