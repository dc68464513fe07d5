/** The receiving end of sd_notify(3). */
import { endianness } from 'node:os';
import { closeFd, watchReadable } from '../../src/sys/files/fd.js';
import { receiveDescriptors } from '../../src/sys/net/descriptor-messages.js';
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

export interface Notifications {
  /** So far, in their order. */
  readonly all: readonly string[];
  /** Descriptors that were given to be kept, by their names. */
  readonly stored: ReadonlyMap<string, number>;
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
  const stored = new Map<string, number>();
  const remove = (name: string): void => {
    const kept = stored.get(name);
    if (kept !== undefined) closeFd(kept);
    stored.delete(name);
  };
  const watch = watchReadable(fd, () => {
    for (let next = receiveDescriptors(fd, 4096); next !== undefined; next = receiveDescriptors(fd, 4096)) {
      const text = next.bytes.toString();
      all.push(text);
      const name = /^FDNAME=(.*)$/m.exec(text)?.[1] ?? '';
      if (/^FDSTOREREMOVE=1$/m.test(text)) remove(name);
      for (const each of next.fds) {
        if (/^FDSTORE=1$/m.test(text)) stored.set(name, each);
        else closeFd(each);
      }
    }
  });
  return {
    all,
    stored,
    close: () => {
      watch.close();
      closeFd(fd);
      for (const name of stored.keys()) remove(name);
    },
  };
}
