/** Calls a shim directly, past containerd, in ttrpc: each frame is a head of ten bytes and a message. */
import { create, fromBinary, toBinary, type DescMessage, type MessageShape } from '@bufbuild/protobuf';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { internal } from '../../errors/engine-error.js';
import type { ProcessRef } from '../exits/exit-watch.js';
import { fromShim, lostShim } from '../grpc-error.js';
import { ProcessRequestSchema, RpcRequestSchema, RpcResponseSchema } from '../proto/gen/shim_pb.js';

const HEAD_BYTES = 10;
const REQUEST = 1;
/** A longer answer than this does not come from a shim. */
const MAX_FRAME_BYTES = 4 * 1024 * 1024;

export interface ShimRequest {
  /** Such as `containerd.task.v2.Task`. */
  readonly service: string;
  readonly method: string;
  readonly payload: Uint8Array;
}

/** Returns the payload of a request that names a process and nothing else. */
export function processPayload(process: ProcessRef): Uint8Array {
  return toBinary(ProcessRequestSchema, create(ProcessRequestSchema, process));
}

/** Returns the bytes of a request. @param stream an odd number, which the answer has as well. */
export function requestFrame(stream: number, { service, method, payload }: ShimRequest): Buffer {
  const message = toBinary(RpcRequestSchema, create(RpcRequestSchema, { service, method, payload }));
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE(message.length, 0);
  head.writeUInt32BE(stream, 4);
  head.writeUInt8(REQUEST, 8);
  return Buffer.concat([head, message]);
}

/** Returns the first frame, and its length; undefined if it is not all there. @throws EngineError if it is too long. */
export function firstFrame(received: Buffer): { stream: number; message: Buffer; bytes: number } | undefined {
  if (received.length < HEAD_BYTES) return undefined;
  const length = received.readUInt32BE(0);
  if (length > MAX_FRAME_BYTES) throw internal('the shim sends too much');
  const bytes = HEAD_BYTES + length;
  if (received.length < bytes) return undefined;
  return { stream: received.readUInt32BE(4), message: received.subarray(HEAD_BYTES, bytes), bytes };
}

/** Returns the content of an answer. @throws EngineError with the shim's message if it refuses. */
export function payloadOf(message: Uint8Array, method: string): Uint8Array {
  let response;
  try {
    response = fromBinary(RpcResponseSchema, message);
  } catch (error) {
    throw internal('the shim sends no answer', { cause: error });
  }
  const { status, payload } = response;
  if (status !== undefined && status.code !== 0) throw fromShim(status, method);
  return payload;
}

interface Call {
  readonly method: string;
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
  /** Resolves when the kernel has connected it, whatever the shim does. */
  readonly opened: Promise<void>;
  /** Resolves when the shim has ended, or cannot be reached, or `close` was called. */
  readonly closed: Promise<void>;

  /** @param service such as `containerd.task.v2.Task`. */
  constructor(path: string, service: string) {
    this.#service = service;
    this.#socket = connect(path);
    this.#socket.on('data', (chunk) => this.#receive(chunk));
    // 'close' follows, and calls fail.
    this.#socket.on('error', () => undefined);
    this.opened = once(this.#socket, 'connect').then(() => undefined);
    this.opened.catch(() => undefined);
    this.closed = new Promise((resolve) =>
      this.#socket.on('close', () => {
        // The shim's end is known before anybody is told of the failure.
        resolve();
        this.#fail();
      }),
    );
    // A shim that does not answer must not keep the daemon from ending.
    this.#socket.unref();
  }

  /** Makes a call that names a process and nothing else. @throws EngineError as `call` does. */
  ask<Answer extends DescMessage>(method: string, answer: Answer, process: ProcessRef): Promise<MessageShape<Answer>> {
    return this.call(method, answer, processPayload(process));
  }

  /** @throws EngineError as containerd would pass it on; with `details.shimLost` when the connection breaks. */
  async call<Answer extends DescMessage>(
    method: string,
    answer: Answer,
    payload: Uint8Array,
  ): Promise<MessageShape<Answer>> {
    const stream = this.#nextStream;
    this.#nextStream += 2;
    const frame = requestFrame(stream, { service: this.#service, method, payload });
    const bytes = await new Promise<Uint8Array>((resolve, reject) => {
      if (this.#socket.destroyed) return reject(lostShim(method));
      this.#calls.set(stream, { method, resolve, reject });
      this.#socket.write(frame);
    });
    return fromBinary(answer, bytes);
  }

  /** True while an answer is awaited. */
  get isBusy(): boolean {
    return this.#calls.size > 0;
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    try {
      for (;;) {
        const frame = firstFrame(this.#received);
        if (frame === undefined) return;
        this.#received = this.#received.subarray(frame.bytes);
        this.#answer(frame.stream, frame.message);
      }
    } catch (error) {
      this.#socket.destroy(error as Error);
    }
  }

  #answer(stream: number, message: Uint8Array): void {
    const call = this.#calls.get(stream);
    this.#calls.delete(stream);
    if (call === undefined) return;
    try {
      call.resolve(payloadOf(message, call.method));
    } catch (error) {
      call.reject(error as Error);
    }
  }

  #fail(): void {
    for (const { method, reject } of this.#calls.values()) reject(lostShim(method));
    this.#calls.clear();
  }
}
