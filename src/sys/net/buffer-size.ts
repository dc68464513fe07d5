/** Sizes of the buffers of sockets, beyond what the host allows by default. */
import { libc } from '../ffi/libc.js';
import { SOL_SOCKET } from './socket-calls.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const OPTIONS = { send: { force: 32, ask: 7 }, receive: { force: 33, ask: 8 } } as const;

const setsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: number]>(
  'setsockopt',
  'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
);

/** Gives a buffer a size in bytes. An ordinary user's daemon gets at most what the host allows to everybody. */
export function growBuffer(fd: number, direction: keyof typeof OPTIONS, bytes: number): void {
  const { force, ask } = OPTIONS[direction];
  try {
    setsockopt(fd, SOL_SOCKET, force, Int32Array.of(bytes), 4);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error;
    setsockopt(fd, SOL_SOCKET, ask, Int32Array.of(bytes), 4);
  }
}
