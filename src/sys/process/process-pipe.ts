/** Pipes that other processes have open. */
import { constants } from 'node:fs';
import { open, readlink } from 'node:fs/promises';
import { pipeRoom, setPipeRoom } from '../files/fd.js';

// linux/fcntl.h; the same on every architecture that we have binaries for.
const O_PATH = 0o10000000;
/** The kernel's name of a pipe without a path; a path begins with a slash. */
const PIPE = /^pipe:\[\d+\]$/;

/**
 * Gives the pipe that a process has under this descriptor room for at least so many bytes. Where it has something else,
 * nothing happens. The process may put anything there meanwhile, such as a file of a server that does not answer:
 * nothing is opened before it is known to be a pipe, and the main thread waits for none of it.
 * @throws the error of open(2); EngineError code EPERM when this user may not have so large a pipe.
 */
export async function widenPipe(pid: number, descriptor: number, bytes: number): Promise<void> {
  const path = `/proc/${pid}/fd/${descriptor}`;
  if (!PIPE.test(await readlink(path))) return;
  // It opens nothing, but what is found by it does not change any more.
  const found = await open(path, O_PATH);
  try {
    const own = `/proc/self/fd/${found.fd}`;
    if (!PIPE.test(await readlink(own))) return;
    const pipe = await open(own, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (pipeRoom(pipe.fd) < bytes) setPipeRoom(pipe.fd, bytes);
    } finally {
      await pipe.close();
    }
  } finally {
    await found.close();
  }
}
