/**
 * The file of a unix socket on which the daemon listens: nobody else may listen there, and the file is removed when the
 * daemon ends.
 */
import { fstatSync } from 'node:fs';
import { chmod, chown, lstat, readFile, unlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { conflict, invalid } from '../errors/engine-error.js';
import { closeFd } from '../sys/files/fd.js';
import { listenOnUnix } from '../sys/net/listen-socket.js';
import { MAX_UNIX_PATH_BYTES } from '../sys/net/socket-calls.js';

const SOCKET_MODE = 0o660;
/** Until its group is set a socket file is open to its owner only. */
const INITIAL_MODE = 0o600;
/** Time for a probed socket to answer a connect; a full backlog counts as alive. */
const PROBE_MS = 1_000;
/** __SO_ACCEPTCON, as /proc/net/unix has it. */
const LISTENS = '00010000';

export interface SocketFile {
  readonly fd: number;
  /** True for the socket of the earlier process. */
  readonly isEarlier: boolean;
  /** Deletes the file, unless somebody has put another one in its place. */
  readonly remove: () => Promise<void>;
}

/**
 * Listens on a path, with mode 0660 and the given group. A socket that nobody answers is replaced.
 * @param earlier a socket that an earlier process listened on at this path. It is used further if its file is there
 * still, and closed otherwise.
 * @throws EngineError conflict when somebody answers, or when it is no socket; invalid when the path is too long;
 * others by errno.
 */
export async function openSocketFile(path: string, gid: number | undefined, earlier?: number): Promise<SocketFile> {
  if (Buffer.byteLength(path) > MAX_UNIX_PATH_BYTES) {
    throw invalid(`cannot listen on ${path}: it is longer than ${MAX_UNIX_PATH_BYTES} bytes`, { code: 'LISTEN' });
  }
  const isEarlier = earlier !== undefined && (await isListening(earlier, path));
  if (earlier !== undefined && !isEarlier) closeFd(earlier);
  if (!isEarlier) await removeStaleSocket(path);
  const fd = isEarlier ? earlier : listenOnUnix(path, INITIAL_MODE);
  try {
    if (gid !== undefined) await chown(path, -1, gid);
    await chmod(path, SOCKET_MODE);
  } catch (error) {
    closeFd(fd);
    await unlink(path);
    throw error;
  }
  const ours = await lstat(path);
  const remove = async (): Promise<void> => {
    const present = await lstat(path).catch(absent);
    if (present?.ino === ours.ino && present.dev === ours.dev) await unlink(path).catch(absent);
  };
  return { fd, isEarlier, remove };
}

/**
 * True when a listening socket is the only one of its path, and somebody is reached there: then it is the one. The
 * kernel lists `address: references protocol flags type state inode path`.
 */
async function isListening(fd: number, path: string): Promise<boolean> {
  const present = await lstat(path).catch(absent);
  if (present?.isSocket() !== true || !(await isAnswered(path))) return false;
  const table = await readFile('/proc/net/unix', 'utf8').catch(() => '');
  const inodes = table.split('\n').flatMap((line) => {
    if (!line.endsWith(` ${path}`)) return [];
    const [, , , flags, , , inode] = line.split(' ').filter((field) => field !== '');
    return flags === LISTENS ? [inode] : [];
  });
  return inodes.length === 1 && inodes[0] === String(fstatSync(fd).ino);
}

/** Ignores that a file is gone already. */
function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/**
 * Removes a socket file that nobody answers.
 * @throws EngineError conflict when somebody answers there, or when it is no socket.
 */
async function removeStaleSocket(path: string): Promise<void> {
  const present = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    // An error other than the file's absence comes up again, with a better text, when the path is bound.
    void error;
    return undefined;
  });
  if (present === undefined) return;
  if (!present.isSocket())
    throw conflict(`cannot listen on ${path}: it exists and is not a socket`, { code: 'LISTEN' });
  if (await isAnswered(path)) {
    throw conflict(`cannot listen on ${path}: another process is listening there`, { code: 'LISTEN' });
  }
  await unlink(path);
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    const done = (answered: boolean): void => {
      probe.destroy();
      resolve(answered);
    };
    probe.setTimeout(PROBE_MS, () => done(true));
    probe.once('connect', () => done(true));
    probe.once('error', (error: NodeJS.ErrnoException) =>
      done(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'),
    );
  });
}
