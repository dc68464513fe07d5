/**
 * An answer of a shim that waits in a socket until somebody wants it: the shim is asked how a task will have ended, and
 * whoever has the socket finds out later, however often. Nothing is taken out of it.
 */
import { create, fromBinary } from '@bufbuild/protobuf';
import { writeSync } from 'node:fs';
import { closeFd, peekSocket } from '../../sys/files/fd.js';
import { connectUnix } from '../../sys/net/unix-stream.js';
import { WaitResponseSchema } from '../proto/gen/shim_pb.js';
import { ProcessSchema, Status, type Process } from '../proto/gen/task_types_pb.js';
import { firstFrame, payloadOf, processPayload, requestFrame } from '../shims/shim-connection.js';
import type { ShimAddress } from '../shims/shim-address.js';

/** The answer is a code and a time; a refusal has a message. */
const ANSWER_BYTES = 4096;

/**
 * Asks a shim for the end of a task's init process. @returns the socket for the answer, which the caller closes.
 * @throws EngineError when the shim does not listen.
 */
export function askForEnd({ path, service }: ShimAddress, id: string): number {
  const fd = connectUnix(path);
  try {
    // The few bytes have room in an empty socket.
    writeSync(fd, requestFrame(1, { service, method: 'Wait', payload: processPayload({ id, execId: '' }) }));
    return fd;
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

/** Returns the task as it has ended; undefined as long as the shim has not told that, or if it never will. */
export function toldEnd(fd: number, id: string): Process | undefined {
  try {
    const bytes = Buffer.alloc(ANSWER_BYTES);
    const frame = firstFrame(bytes.subarray(0, peekSocket(fd, bytes) ?? 0));
    if (frame === undefined) return undefined;
    const { exitStatus, exitedAt } = fromBinary(WaitResponseSchema, payloadOf(frame.message, 'Wait'));
    const process = create(ProcessSchema, { id, status: Status.STOPPED, exitStatus });
    return exitedAt === undefined ? process : { ...process, exitedAt };
  } catch {
    return undefined;
  }
}
