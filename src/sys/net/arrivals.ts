/**
 * Tells when further bytes arrive at a socket whose earlier bytes nobody has taken, and when the other side of one is
 * gone that has told its end before. The event loop's own poll would report what was before again and again, so the
 * sockets are watched by an epoll instance of ours, edge-triggered.
 */
import { libc } from '../ffi/libc.js';
import { watchReadable, type ReadableWatch } from '../files/fd.js';

// linux/eventpoll.h; the same on every architecture that we have binaries for.
const EPOLL_CLOEXEC = 0x80000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
const EPOLLIN = 0x1;
const EPOLLERR = 0x8;
const EPOLLHUP = 0x10;
const EPOLLRDHUP = 0x2000;
const EPOLLET = 0x80000000;

/** `struct epoll_event` is packed on x86-64 only. */
const DATA_OFFSET = process.arch === 'x64' ? 4 : 8;
const EVENT_BYTES = DATA_OFFSET + 8;
const BATCH = 64;

const epollCreate = libc.checked<[flags: number]>('epoll_create1', 'int epoll_create1(int flags)');
const epollControl = libc.checked<[epoll: number, operation: number, fd: number, event: Uint8Array | null]>(
  'epoll_ctl',
  'int epoll_ctl(int epoll, int operation, int fd, void *event)',
);
const epollWait = libc.checked<[epoll: number, events: Uint8Array, count: number, timeoutMs: number]>(
  'epoll_wait',
  'int epoll_wait(int epoll, void *events, int count, int timeout)',
);

/** Watches are found by a number that is never used again, because the number of a closed descriptor is. */
const watches = new Map<number, (hasEnded: boolean) => void>();
const events = Buffer.alloc(EVENT_BYTES * BATCH);
let lastWatch = 0;
let epoll: { readonly fd: number; readonly watch: ReadableWatch } | undefined;

/**
 * Calls back when bytes arrive, with true when the other side sends no more. It also calls back once for the bytes that
 * are there already. @returns what ends the watch; it must be called before the descriptor is closed or given away.
 * @throws EngineError when the system has no room for it.
 */
export function watchArrivals(fd: number, callback: (hasEnded: boolean) => void): { close(): void } {
  const { fd: epollFd, watch } = (epoll ??= openEpoll());
  const id = add(fd, EPOLLIN + EPOLLRDHUP + EPOLLET, callback);
  return {
    close: () => {
      if (!watches.has(id)) return;
      epollControl(epollFd, EPOLL_CTL_DEL, fd, null);
      forget(id, watch);
    },
  };
}

/**
 * Calls back once when the other side of a socket neither sends nor receives any more. @returns what ends the watch,
 * also after the descriptor was closed. @throws EngineError when the system has no room for it.
 */
export function onceGone(fd: number, callback: () => void): { close(): void } {
  const { watch } = (epoll ??= openEpoll());
  // The kernel always reports a hang-up, and ends the watch with the descriptor.
  const id = add(fd, EPOLLET, () => {
    forget(id, watch);
    callback();
  });
  return { close: () => forget(id, watch) };
}

function add(fd: number, flags: number, callback: (hasEnded: boolean) => void): number {
  const { fd: epollFd, watch } = (epoll ??= openEpoll());
  const id = (lastWatch = (lastWatch % 0x7fffffff) + 1);
  const event = Buffer.alloc(EVENT_BYTES);
  event.writeUInt32LE(flags, 0);
  event.writeUInt32LE(id, DATA_OFFSET);
  epollControl(epollFd, EPOLL_CTL_ADD, fd, event);
  if (watches.size === 0) watch.resume();
  watches.set(id, callback);
  return id;
}

/** A process that waits for nothing else may end. */
function forget(id: number, watch: ReadableWatch): void {
  if (watches.delete(id) && watches.size === 0) watch.pause();
}

function openEpoll(): { readonly fd: number; readonly watch: ReadableWatch } {
  const fd = epollCreate(EPOLL_CLOEXEC);
  const watch = watchReadable(fd, () => report(fd));
  watch.pause();
  return { fd, watch };
}

function report(epollFd: number): void {
  const count = epollWait(epollFd, events, BATCH, 0);
  const reported: [id: number, flags: number][] = [];
  for (let at = 0; at < count * EVENT_BYTES; at += EVENT_BYTES)
    reported.push([events.readUInt32LE(at + DATA_OFFSET), events.readUInt32LE(at)]);
  // A callback may end other watches, which then must not be called any more.
  for (const [id, flags] of reported) watches.get(id)?.((flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) !== 0);
}
