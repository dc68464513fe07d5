/** Calls a shim directly, past containerd, in ttrpc: each frame is a head of ten bytes and a message. */
import { create, fromBinary, toBinary, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { connect, type Socket } from 'node:net';
import { internal } from '../errors/engine-error.js';
import { ProcessRequestSchema, RpcRequestSchema, RpcResponseSchema } from './proto/gen/shim_pb.js';

const HEAD_BYTES = 10;
const REQUEST = 1;
/** A longer answer than this does not come from a shim. */
const MAX_FRAME_BYTES = 4 * 1024 * 1024;

interface Call {
  readonly resolve: (payload: Uint8Array) => void;
  readonly reject: (error: Error) => void;
}

export class ShimConnection {
  readonly #socket: Socket;
  readonly #service: string;
  readonly #calls = new Map<number, Call>();
  #received = Buffer.alloc(0);
  /** Streams of clients have odd numbers. */
  #nextStream = 1;

  /** @param service such as `containerd.task.v2.Task`. */
  constructor(path: string, service: string) {
    this.#service = service;
    this.#socket = connect(path);
    this.#socket.on('data', (chunk) => this.#receive(chunk));
    this.#socket.on('error', (error) => this.#fail(error));
    this.#socket.on('close', () => this.#fail(internal('the shim closed the connection')));
    // A shim that does not answer must not keep the daemon from ending.
    this.#socket.unref();
  }

  async ask<Answer extends DescMessage>(
    method: string,
    answer: Answer,
    process: { id: string; execId: string },
  ): Promise<MessageShape<Answer>> {
    const payload = toBinary(ProcessRequestSchema, create(ProcessRequestSchema, process));
    const request = create(RpcRequestSchema, { service: this.#service, method, payload });
    const message = toBinary(RpcRequestSchema, request);
    const stream = this.#nextStream;
    this.#nextStream += 2;
    const head = Buffer.alloc(HEAD_BYTES);
    head.writeUInt32BE(message.length, 0);
    head.writeUInt32BE(stream, 4);
    head.writeUInt8(REQUEST, 8);
    const bytes = await new Promise<Uint8Array>((resolve, reject) => {
      if (this.#socket.destroyed) return reject(internal('the shim closed the connection'));
      this.#calls.set(stream, { resolve, reject });
      this.#socket.write(Buffer.concat([head, message]));
    });
    return fromBinary(answer, bytes);
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    while (this.#received.length >= HEAD_BYTES) {
      const length = this.#received.readUInt32BE(0);
      if (length > MAX_FRAME_BYTES) return void this.#socket.destroy(internal('the shim sends too much'));
      if (this.#received.length < HEAD_BYTES + length) return;
      const stream = this.#received.readUInt32BE(4);
      const message = this.#received.subarray(HEAD_BYTES, HEAD_BYTES + length);
      this.#received = this.#received.subarray(HEAD_BYTES + length);
      this.#answer(stream, message);
    }
  }

  #answer(stream: number, message: Uint8Array): void {
    const call = this.#calls.get(stream);
    this.#calls.delete(stream);
    if (call === undefined) return;
    try {
      const { status, payload } = fromBinary(RpcResponseSchema, message);
      if (status === undefined || status.code === 0) call.resolve(payload);
      else call.reject(internal(status.message));
    } catch (error) {
      call.reject(internal('the shim sends no answer', { cause: error }));
    }
  }

  #fail(error: Error): void {
    for (const { reject } of this.#calls.values()) reject(error);
    this.#calls.clear();
  }
}
