/** Connections to a socket in a directory that somebody else can change, such as a plugin. */
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { unavailable } from '../../errors/engine-error.js';
import { O_PATH } from '../files/open-in-root.js';

/**
 * Begins a connection to the socket that is at a path now, and to nothing that a link there leads to: the place is
 * opened once, looked at, and connected to by its descriptor. The directory must be the caller's.
 * @throws EngineError unavailable, with the errno's name ENOENT as `errno` among the details, when no socket is there.
 */
export function connectPinned(path: string): Socket {
  let fd: number;
  try {
    fd = openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    throw noSocket(path, error);
  }
  try {
    if (!fstatSync(fd).isSocket()) throw noSocket(path);
    // connect(2) has looked the socket up when this returns.
    return connect({ path: `/proc/self/fd/${fd}` });
  } finally {
    closeSync(fd);
  }
}

function noSocket(path: string, cause?: unknown): Error {
  return unavailable(`dial unix ${path}: no socket is there`, {
    code: 'ENOENT',
    details: { errno: 'ENOENT' },
    ...(cause === undefined ? {} : { cause }),
  });
}
