/** The address that a socket of ours is bound to. */
import { invalid } from '../../errors/engine-error.js';
import { libc } from '../ffi/libc.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;

const getsockname = libc.checked<[fd: number, address: Uint8Array, length: Uint32Array]>(
  'getsockname',
  'int getsockname(int fd, _Out_ void *address, _Inout_ uint32_t *length)',
);

/**
 * Returns `unix:///run/engine.sock` (`unix://@name` for an abstract one) or `tcp://[::1]:2375`.
 * @throws EngineError invalid for other families, code EBADF, ENOTSOCK.
 */
export function socketName(fd: number): { readonly kind: 'unix' | 'tcp'; readonly address: string } {
  const bytes = Buffer.alloc(128);
  const length = Uint32Array.of(bytes.length);
  getsockname(fd, bytes, length);
  const family = new Uint16Array(bytes.buffer, bytes.byteOffset, 1)[0];
  if (family === AF_INET)
    return { kind: 'tcp', address: `tcp://${bytes.subarray(4, 8).join('.')}:${bytes.readUInt16BE(2)}` };
  if (family === AF_INET6) {
    const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(8 + 2 * i).toString(16));
    return {
      kind: 'tcp',
      address: `tcp://${new URL(`http://[${groups.join(':')}]`).hostname}:${bytes.readUInt16BE(2)}`,
    };
  }
  if (family !== AF_UNIX) throw invalid(`sockets of address family ${family} are not served`);
  const path = bytes.subarray(2, length[0]);
  const text = path[0] === 0 ? `@${path.subarray(1).toString()}` : path.toString().replace(/\0[^]*$/, '');
  return { kind: 'unix', address: `unix://${text}` };
}
