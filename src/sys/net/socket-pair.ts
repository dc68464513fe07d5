/** Two connected sockets. */
import { libc } from '../ffi/libc.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM } from './socket-calls.js';

const socketpair = libc.checked<[domain: number, type: number, protocol: number, fds: Int32Array]>(
  'socketpair',
  'int socketpair(int domain, int type, int protocol, _Out_ int *fds)',
);

/**
 * Makes the pair, not inherited and not blocking: of streams, or of messages that stay apart. The caller closes both.
 * @throws EngineError code EMFILE, ENFILE.
 */
export function socketPair(kind: 'stream' | 'messages' = 'stream'): readonly [number, number] {
  const fds = new Int32Array(2);
  const type = kind === 'stream' ? SOCK_STREAM : SOCK_SEQPACKET;
  socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
  return [fds[0] ?? -1, fds[1] ?? -1];
}
