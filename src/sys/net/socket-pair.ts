/** Two connected stream sockets. */
import { libc } from '../ffi/libc.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM } from './socket-calls.js';

const socketpair = libc.checked<[domain: number, type: number, protocol: number, fds: Int32Array]>(
  'socketpair',
  'int socketpair(int domain, int type, int protocol, _Out_ int *fds)',
);

/** Makes the pair, not inherited and not blocking. The caller closes both. @throws EngineError code EMFILE, ENFILE. */
export function socketPair(): readonly [number, number] {
  const fds = new Int32Array(2);
  socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
  return [fds[0] ?? -1, fds[1] ?? -1];
}
