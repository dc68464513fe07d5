/** The service by which clients read the documents that records of builds name. */
import { open } from 'node:fs/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { notFound } from '../../errors/engine-error.js';
import { serverStream, unary, type Served } from './grpc-server.js';
import type { BuildHistory } from './history.js';
import { Content, type ReadContentResponseSchema } from '../../ports/proto/gen/content_pb.js';

const PIECE_BYTES = 1024 * 1024;

export function contentMethods(history: Pick<BuildHistory, 'attachment'>): Served[] {
  const find = async (digest: string): Promise<{ readonly content: Buffer | string; readonly sizeBytes: number }> => {
    const found = await history.attachment(digest);
    if (found === undefined) throw notFound(`content ${digest.slice(0, 100)}: not found`);
    return found;
  };
  return [
    unary(Content.method.info, async ({ digest }) => {
      const { sizeBytes } = await find(digest);
      return { info: { digest, size: BigInt(sizeBytes) } };
    }),
    serverStream(Content.method.read, async function* ({ digest, offset, size }) {
      const { content, sizeBytes } = await find(digest);
      const start = Math.max(0, Number(offset));
      const end = size > 0n ? Math.min(sizeBytes, start + Number(size)) : sizeBytes;
      if (typeof content === 'string') yield* pieces(content, start, end);
      else if (start < end) yield { offset: BigInt(start), data: content.subarray(start, end) };
    }),
  ];
}

async function* pieces(
  path: string,
  start: number,
  end: number,
): AsyncGenerator<MessageInitShape<typeof ReadContentResponseSchema>> {
  const file = await open(path, 'r');
  try {
    for (let at = start; at < end;) {
      const piece = Buffer.alloc(Math.min(PIECE_BYTES, end - at));
      const { bytesRead } = await file.read(piece, 0, piece.length, at);
      if (bytesRead === 0) return;
      yield { offset: BigInt(at), data: piece.subarray(0, bytesRead) };
      at += bytesRead;
    }
  } finally {
    await file.close();
  }
}
