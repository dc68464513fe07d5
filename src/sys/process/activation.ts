/** Descriptors that a service manager passes on: the protocol of sd_listen_fds(3). */
import { invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { socketName } from '../net/socket-name.js';

// linux/fcntl.h, linux/socket.h; the same on every architecture that we have binaries for.
const F_SETFD = 2;
const F_GETFL = 3;
const F_SETFL = 4;
const FD_CLOEXEC = 1;
const O_NONBLOCK = 0o4000;
const SOL_SOCKET = 1;
const SO_TYPE = 3;
const SO_ACCEPTCONN = 30;
const SOCK_STREAM = 1;
/** SD_LISTEN_FDS_START. */
const FIRST_FD = 3;
const VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'] as const;

const fcntl = libc.checked<[fd: number, command: number, argument: number]>(
  'fcntl',
  'int fcntl(int fd, int command, int argument)',
);
const getsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: Uint32Array]>(
  'getsockopt',
  'int getsockopt(int fd, int level, int name, _Out_ void *value, _Inout_ uint32_t *length)',
);

/** A stream socket that listens; the descriptor is ours. */
export interface ActivationSocket {
  readonly fd: number;
  /** FileDescriptorName= of the unit; '' when none was passed. Several may have the same. */
  readonly name: string;
  readonly kind: 'unix' | 'tcp';
  /** `unix:///run/engine.sock` or `tcp://127.0.0.1:2375`. */
  readonly address: string;
}

/** Descriptors that a service manager passed on, by what they are for. */
export interface PassedDescriptors {
  /** Sockets that it opened for us. */
  readonly sockets: readonly ActivationSocket[];
  /** Descriptors that an earlier process of ours had it keep, by their names. */
  readonly kept: ReadonlyMap<string, number>;
}

/**
 * Takes the descriptors that were passed to this process, in their order, and the variables that tell of them out of
 * the environment, so that no child takes them for its own. Call it once, before anything is spawned.
 * @param isKept tells by its name whether a descriptor was given to the service manager to be kept.
 * @throws EngineError invalid for another descriptor that is no listening stream socket.
 */
export function takePassedDescriptors(
  environment: NodeJS.ProcessEnv,
  isKept: (name: string) => boolean,
): PassedDescriptors {
  const [pid, count = '', names = ''] = VARIABLES.map((name) => environment[name]);
  for (const name of VARIABLES) delete environment[name];
  if (Number(pid) !== process.pid || !/^\d{1,5}$/.test(count)) return { sockets: [], kept: new Map() };
  const named = names.split(':');
  const all = Array.from({ length: Number(count) }, (_, i) => ({ fd: FIRST_FD + i, name: named[i] ?? '' }));
  const kept = new Map<string, number>();
  const sockets: ActivationSocket[] = [];
  for (const { fd, name } of all) {
    if (!isKept(name)) sockets.push(describe(fd, name));
    else {
      prepare(fd);
      kept.set(name, fd);
    }
  }
  return { sockets, kept };
}

/**
 * Those that `fd://<select>` means: all for '', else the one with this number or those with this name. The others are
 * closed. @throws EngineError invalid.
 */
export function selectActivationSockets(
  sockets: readonly ActivationSocket[],
  selections: readonly string[],
): ActivationSocket[] {
  if (sockets.length === 0)
    throw invalid('no sockets found via socket activation: make sure the service was started by systemd', {
      code: 'NO_ACTIVATION',
    });
  const chosen = new Set(selections.flatMap((select) => selectOne(sockets, select)));
  for (const socket of sockets) if (!chosen.has(socket)) closeFd(socket.fd);
  return [...chosen];
}

function selectOne(sockets: readonly ActivationSocket[], select: string): readonly ActivationSocket[] {
  if (select === '') return sockets;
  const named = sockets.filter(({ name }) => name === select);
  if (named.length > 0) return named;
  const numbered = sockets.filter(({ fd }) => String(fd) === select);
  if (numbered.length > 0) return numbered;
  if (/^\d+$/.test(select))
    throw invalid(`too few socket activated files passed in by systemd: there is no ${select}, ${offer(sockets)}`, {
      code: 'NO_ACTIVATION',
    });
  throw invalid(`no socket activated file passed in by systemd has the name ${select}: ${offer(sockets)}`, {
    code: 'NO_ACTIVATION',
  });
}

function offer(sockets: readonly ActivationSocket[]): string {
  return `there are ${sockets.map(({ fd, name }) => (name === '' ? String(fd) : `${fd} (${name})`)).join(', ')}`;
}

function describe(fd: number, name: string): ActivationSocket {
  const what = `file descriptor ${fd}${name === '' ? '' : ` (${name})`} of the socket activation`;
  try {
    prepare(fd);
    if (option(fd, SO_TYPE) !== SOCK_STREAM) throw invalid(`${what} is not a stream socket`);
    if (option(fd, SO_ACCEPTCONN) === 0) throw invalid(`${what} does not listen: its socket unit needs Accept=no`);
    return { fd, name, ...socketName(fd) };
  } catch (cause) {
    throw isEngineError(cause, 'invalid')
      ? cause
      : invalid(`${what} cannot be used: ${messageOf(cause)}`, { code: 'NO_ACTIVATION', cause });
  }
}

function prepare(fd: number): void {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
}

function option(fd: number, name: number): number {
  const value = new Int32Array(1);
  getsockopt(fd, SOL_SOCKET, name, value, Uint32Array.of(value.byteLength));
  return value[0] ?? 0;
}
