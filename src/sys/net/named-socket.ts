/**
 * The socket at a path that a client names. Any file system may be there, also one whose server is gone, and connect(2)
 * looks the path up in the calling thread: so it is looked up beside the main thread first.
 */
import { open } from 'node:fs/promises';
import { O_PATH } from '../files/open-in-root.js';

/**
 * Calls `use` with another path of the socket, which can be connected to without any look-up, until it is done.
 * @throws Error with the code that connect(2) would have: ENOENT, ECONNREFUSED when there is something else.
 */
export async function atNamedSocket<T>(path: string, use: (place: string) => T | Promise<T>): Promise<T> {
  const place = await open(path, O_PATH);
  try {
    if (!(await place.stat()).isSocket())
      throw Object.assign(new Error(`connect ${path}: connection refused`), { code: 'ECONNREFUSED' });
    return await use(`/proc/self/fd/${place.fd}`);
  } finally {
    await place.close();
  }
}
