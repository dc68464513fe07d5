/**
 * Netlink sockets. The kernel does its work inside send(2), which may take milliseconds where it waits for its lock
 * over all links, so requests are sent from libuv's pool; the answers are there when send returns.
 */
import { type EngineError, internal } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { libc, syscallError } from '../ffi/libc.js';
import { socket } from '../net/socket-calls.js';
import {
  messagesOf,
  NLM_F_DUMP_INTR,
  NLMSG_DONE,
  NLMSG_ERROR,
  packMessage,
  type NetlinkAnswer,
  type NetlinkMessage,
} from './netlink-wire.js';

// linux/socket.h, linux/netlink.h
const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0x80000;
const MSG_DONTWAIT = 0x40;
const EINTR = 4;
const EAGAIN = 11;
const RECEIVE_BYTES = 1 << 16;
const DUMP_ATTEMPTS = 5;

/** Protocols of netlink, linux/netlink.h. */
export const NETLINK_ROUTE = 0;
export const NETLINK_NETFILTER = 12;

const sendLater = libc.async<[fd: number, data: Uint8Array, length: number, flags: number]>(
  'send',
  'intptr_t send(int fd, const void *data, size_t length, int flags)',
);
const send = libc.checked<[fd: number, data: Uint8Array, length: number, flags: number]>(
  'send',
  'intptr_t send(int fd, const void *data, size_t length, int flags)',
);
const recv = libc.func<[fd: number, data: Uint8Array, length: number, flags: number]>(
  'intptr_t recv(int fd, void *data, size_t length, int flags)',
);

/**
 * All requests of the process stand in one line: the kernel would let them wait for one another anyway, each on a
 * thread of the pool that file operations need meanwhile.
 */
let line: Promise<unknown> = Promise.resolve();
/** Answers are taken in synchronously, one socket at a time. */
const received = Buffer.allocUnsafeSlow(RECEIVE_BYTES);

/** Belongs for ever to the network namespace that the thread was in when it was made. */
export class NetlinkSocket {
  readonly fd: number;
  #sequence = 1;
  #busy: Promise<unknown> = Promise.resolve();
  #isClosed = false;
  #isDone = false;

  constructor(protocol: number) {
    this.fd = socket(AF_NETLINK, SOCK_RAW_CLOEXEC, protocol);
  }

  /** Closes the socket after the work under way. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    void this.#busy.then(() => {
      this.#isDone = true;
      closeFd(this.fd);
    });
  }

  /**
   * Sends messages in one go; the kernel takes each, whatever became of those before it.
   * @throws EngineError of the first one refused, code the errno's name.
   */
  request(messages: readonly NetlinkMessage[]): Promise<NetlinkAnswer[]> {
    const run = line.then(async () => {
      for (let attempt = 1; ; attempt++) {
        this.#requireOpen();
        const { data, open } = this.#pack(messages);
        await sendLater(this.fd, data, data.length, 0);
        const answers = this.#receive(open);
        // A dump that met changes may miss or repeat entries.
        if (attempt === DUMP_ATTEMPTS || !answers.some(({ flags }) => (flags & NLM_F_DUMP_INTR) !== 0)) return answers;
      }
    });
    line = run.catch(() => undefined);
    this.#busy = line;
    return run;
  }

  /**
   * Makes a transaction of nfnetlink, as a whole or not at all. The kernel does not acknowledge `begin` and `end`.
   * @throws EngineError of the first message refused, code the errno's name.
   */
  transact(begin: NetlinkMessage, messages: readonly NetlinkMessage[], end: NetlinkMessage): Promise<NetlinkAnswer[]> {
    const run = line.then(async () => {
      this.#requireOpen();
      const first = packMessage(begin, this.#sequence++, true);
      const { data, open } = this.#pack(messages);
      const whole = Buffer.concat([first, data, packMessage(end, this.#sequence++, true)]);
      await sendLater(this.fd, whole, whole.length, 0);
      return this.#receive(open);
    });
    line = run.catch(() => undefined);
    this.#busy = line;
    return run;
  }

  /**
   * Does the same as `request` on this thread: only for messages that wait for no lock, and not during a request on
   * this socket.
   */
  requestNow(messages: readonly NetlinkMessage[]): NetlinkAnswer[] {
    this.#requireOpen();
    const { data, open } = this.#pack(messages);
    send(this.fd, data, data.length, 0);
    return this.#receive(open);
  }

  /**
   * Checks that the socket is open. @throws EngineError internal: the number of a closed descriptor may be that of
   * another file by now.
   */
  #requireOpen(): void {
    if (this.#isDone) throw internal('the netlink socket is closed', { code: 'EBADF' });
  }

  #pack(messages: readonly NetlinkMessage[]): { readonly data: Buffer; readonly open: Set<number> } {
    const open = new Set<number>();
    const data = Buffer.concat(
      messages.map((message) => {
        open.add(this.#sequence);
        return packMessage(message, this.#sequence++);
      }),
    );
    return { data, open };
  }

  /** Takes answers until each of the `open` sequence numbers has its end. */
  #receive(open: Set<number>): NetlinkAnswer[] {
    const answers: NetlinkAnswer[] = [];
    let failure: EngineError | undefined;
    while (open.size > 0) {
      const length = recv(this.fd, received, received.length, MSG_DONTWAIT);
      if (length < 0) {
        const errno = libc.errno();
        if (errno === EINTR) continue;
        // A refused transaction answers for what was wrong alone.
        if (errno === EAGAIN && failure) break;
        throw syscallError('netlink recv', errno);
      }
      for (const answer of messagesOf(received.subarray(0, length))) {
        if (answer.type === NLMSG_ERROR) {
          open.delete(answer.sequence);
          const errno = -answer.payload.readInt32LE(0);
          if (errno !== 0) failure ??= syscallError('netlink', errno);
        } else if (answer.type === NLMSG_DONE) open.delete(answer.sequence);
        else answers.push({ ...answer, payload: Buffer.from(answer.payload) });
      }
    }
    if (failure) throw failure;
    return answers;
  }
}
