/** The receiving end of sd_notify(3). */
import { endianness } from 'node:os';
import { closeFd, watchReadable } from '../../src/sys/files/fd.js';
import { libc } from '../../src/sys/ffi/libc.js';

const AF_UNIX = 1;
const SOCK_DGRAM_NONBLOCK_CLOEXEC = 0o2004002;

const socket = libc.checked<[domain: number, type: number, protocol: number]>(
  'socket',
  'int socket(int domain, int type, int protocol)',
);
const bind = libc.checked<[fd: number, address: Uint8Array, length: number]>(
  'bind',
  'int bind(int fd, const void *address, uint32_t length)',
);
const recv = libc.func<[fd: number, bytes: Uint8Array, length: number, flags: number]>(
  'int64_t recv(int fd, _Out_ void *bytes, size_t length, int flags)',
);

export interface Notifications {
  /** So far, in their order. */
  readonly all: readonly string[];
  close(): void;
}

/** @param path absolute, or `@name` for an abstract one. */
export function receiveNotifications(path: string): Notifications {
  const fd = socket(AF_UNIX, SOCK_DGRAM_NONBLOCK_CLOEXEC, 0);
  const family = Buffer.alloc(2);
  if (endianness() === 'LE') family.writeUInt16LE(AF_UNIX);
  else family.writeUInt16BE(AF_UNIX);
  const address = Buffer.concat([family, Buffer.from(path.replace(/^@/, '\0'))]);
  bind(fd, address, address.length);
  const all: string[] = [];
  const bytes = Buffer.alloc(4096);
  const watch = watchReadable(fd, () => {
    for (let count = recv(fd, bytes, bytes.length, 0); count > 0; count = recv(fd, bytes, bytes.length, 0))
      all.push(bytes.toString('utf8', 0, count));
  });
  return {
    all,
    close: () => {
      watch.close();
      closeFd(fd);
    },
  };
}
