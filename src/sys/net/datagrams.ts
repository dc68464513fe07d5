/**
 * Receives and answers datagrams of IPv4 sockets in batches: one system call takes all that wait, another sends all
 * answers, each written over its question. Node makes two calls and a dozen objects for every single one.
 */
import { libc } from '../ffi/libc.js';

// linux/socket.h; struct mmsghdr and struct iovec as on every 64 bit architecture
const MSG_DONTWAIT = 0x40;
const HEADER = { bytes: 64, name: 0, nameBytes: 8, vector: 16, vectorLength: 24, received: 56 } as const;
/** This part of the header holds the address and the vector. */
const HEADER_TARGET_BYTES = 32;
const VECTOR = { bytes: 16, base: 0, length: 8 } as const;
const SOCKADDR_IN_BYTES = 16;

/** Further messages wait for the next turn of the event loop, so that other work gets its turn. */
const BATCH = 32;
/** Limit of a message and of its answer; a longer one is cut. */
const MAX_BYTES = 4096;

const recvmmsg = libc.func<[fd: number, headers: Uint8Array, count: number, flags: number, timeout: null]>(
  'int recvmmsg(int fd, void *headers, unsigned int count, int flags, void *timeout)',
);
const sendmmsg = libc.func<[fd: number, headers: Uint8Array, count: number, flags: number]>(
  'int sendmmsg(int fd, void *headers, unsigned int count, int flags)',
);
const sendto = libc.func<
  [fd: number, data: Uint8Array, length: number, flags: number, peer: Uint8Array, peerLength: number]
>('long sendto(int fd, const void *data, size_t length, int flags, const void *peer, uint32_t peerLength)');

/**
 * Answers one message. `slot` begins with its `length` bytes; the answer is written over them.
 * @param peer the sender's address. Both belong to the next message as soon as the function returns.
 * @returns the length of the answer; 0 for none, or none yet.
 */
export type AnswerDatagram = (slot: Buffer, length: number, peer: Buffer) => number;

/** All sockets share these slots, because a batch is answered before anything else happens. */
const slots = Array.from({ length: BATCH }, () => ({
  bytes: Buffer.alloc(MAX_BYTES),
  peer: Buffer.alloc(SOCKADDR_IN_BYTES),
}));
const vectors = Buffer.alloc(BATCH * VECTOR.bytes);
const questions = Buffer.alloc(BATCH * HEADER.bytes);
const answers = Buffer.alloc(BATCH * HEADER.bytes);

for (const [index, { bytes, peer }] of slots.entries()) {
  const vector = vectors.subarray(index * VECTOR.bytes);
  vector.writeBigUInt64LE(libc.addressOf(bytes), VECTOR.base);
  vector.writeUInt32LE(MAX_BYTES, VECTOR.length);
  const header = questions.subarray(index * HEADER.bytes);
  header.writeBigUInt64LE(libc.addressOf(peer), HEADER.name);
  header.writeUInt32LE(SOCKADDR_IN_BYTES, HEADER.nameBytes);
  header.writeBigUInt64LE(libc.addressOf(vector), HEADER.vector);
  header.writeUInt32LE(1, HEADER.vectorLength);
}

/** Takes the messages that wait at a socket, some at most, and sends the answers. Never waits. */
export function answerDatagrams(fd: number, answer: AnswerDatagram): void {
  const received = recvmmsg(fd, questions, BATCH, MSG_DONTWAIT, null);
  let count = 0;
  for (let index = 0; index < received; index++) {
    const slot = slots[index] as (typeof slots)[number];
    const length = answer(slot.bytes, questions.readUInt32LE(index * HEADER.bytes + HEADER.received), slot.peer);
    if (length === 0) continue;
    vectors.writeUInt32LE(length, index * VECTOR.bytes + VECTOR.length);
    questions.copy(answers, count++ * HEADER.bytes, index * HEADER.bytes, index * HEADER.bytes + HEADER_TARGET_BYTES);
  }
  // The one that fails is lost, like every datagram that finds no room; those behind it are not.
  for (let sent = 0; sent < count;)
    sent += Math.max(1, sendmmsg(fd, answers.subarray(sent * HEADER.bytes), count - sent, MSG_DONTWAIT));
  for (let index = 0; index < received; index++) vectors.writeUInt32LE(MAX_BYTES, index * VECTOR.bytes + VECTOR.length);
}

/** Sends one message, unless there is no room for it. `peer` is a copy of what `AnswerDatagram` was given. */
export function sendDatagram(fd: number, message: Buffer, peer: Buffer): void {
  sendto(fd, message, message.length, MSG_DONTWAIT, peer, peer.length);
}
