/** The log drivers: json-file, local, none, and the drivers of remote logs with their local copy. */
import { stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { invalid, messageOf, notImplemented, EngineError } from '../../errors/engine-error.js';
import type { LogPlugins } from '../../ports/log-plugin.js';
import type { ContainerLog, LogDriver, LoggedContainer, LogReadOptions } from '../../ports/logs.js';
import { FileLog, readFiles } from '../writing/file-log.js';
import { jsonFormat } from './json-format.js';
import { logAttributes } from '../options/log-attributes.js';
import { LogFile, type RotationPolicy } from '../writing/log-file.js';
import {
  bufferLimit,
  cachePolicy,
  isCached,
  jsonFilePolicy,
  localPolicy,
  LOG_DRIVERS,
  missingSocket,
  namedSocket,
  validateCommonOptions,
  validateLogOptions,
} from '../options/log-options.js';
import { badOption, type LogOptions } from '../options/option-values.js';
import { LateSink } from '../remote/late-sink.js';
import type { RemoteDriver, RemoteReader } from '../remote/remote-driver.js';
import { REMOTE_DRIVERS } from '../remote/remote-drivers.js';
import { openPluginSink } from '../remote/plugin-log.js';
import { readPluginLog } from '../remote/plugin-log-reader.js';
import { RemoteLog } from '../remote/remote-log.js';
import { localFormat } from './local-format.js';
import { lastTime } from '../reading/log-start.js';
import { Stoppable } from '../reading/stoppable.js';
import type { LogObserver } from '../observer.js';
import type { RecordFormat } from './record-format.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { ownMember } from '../../text/own-member.js';

interface FileDriver {
  readonly format: RecordFormat;
  readonly isPathShown: boolean;
  path(dir: string, id: string): string;
  policy(options: LogOptions): RotationPolicy;
}

const FILE_DRIVERS: Readonly<Record<string, FileDriver>> = {
  'json-file': {
    format: jsonFormat,
    isPathShown: true,
    path: (dir, id) => join(dir, `${id}-json.log`),
    policy: jsonFilePolicy,
  },
  local: {
    format: localFormat,
    isPathShown: false,
    path: (dir) => join(dir, 'local-logs', 'container.log'),
    policy: localPolicy,
  },
};

/** This local copy makes a remote log readable. */
const CACHE: FileDriver = {
  format: localFormat,
  isPathShown: false,
  path: (dir) => join(dir, 'container-cached.log'),
  policy: cachePolicy,
};

/**
 * Makes the drivers. @param observe returns the observer of one container's log. @param plugins finds drivers that are
 * plugins.
 */
export function createLogDriver(observe: (containerId: string) => LogObserver, plugins?: LogPlugins): LogDriver {
  const validate = (name: string, options: LogOptions): void => {
    if (isOwn(name) || plugins?.find(name) === undefined) validateLogOptions(name, options);
    // A plugin checks its own options when it is told to start.
    else validateCommonOptions(options);
  };
  const checkPlaces = async (name: string, options: LogOptions): Promise<void> => {
    const socket = namedSocket(name, options);
    if (socket === undefined) return;
    await stat(socket).catch((error: unknown) => {
      const { code } = error as NodeJS.ErrnoException;
      throw code === 'ENOENT' || code === 'ENOTDIR' ? missingSocket(socket) : badOption(messageOf(error), error);
    });
  };
  const driverOf = (name: string): RemoteDriver | undefined =>
    isOwn(name) ? ownMember(REMOTE_DRIVERS, name) : pluginDriver(name, plugins);
  /** Logs being written, by the path of their file. */
  const openLogs = new Map<string, FileLog>();
  return {
    validate,
    checkPlaces,

    async open(container) {
      try {
        // The options were valid when the container was started. If the socket file of its server is gone since then,
        // LateSink waits for it.
        if (!container.isRunning) {
          validate(container.driver, container.options);
          await checkPlaces(container.driver, container.options);
        }
        const file = ownMember(FILE_DRIVERS, container.driver);
        if (file) return await openFileLog(file, container, logAttributes(container), observe(container.id), openLogs);
        const remote = driverOf(container.driver);
        return remote ? await openRemoteLog(remote, container, observe(container.id), openLogs) : noLog;
      } catch (error) {
        const message = `failed to create task for container: failed to initialize logging driver: ${messageOf(error)}`;
        throw error instanceof EngineError
          ? new EngineError(error.kind, message, {
              cause: error,
              ...(error.code === undefined ? {} : { code: error.code }),
            })
          : new EngineError('internal', message, { cause: error });
      }
    },

    read(container, options) {
      const { driver: name, options: logOptions } = container;
      const fromFiles = (driver: FileDriver): AsyncIterableIterator<Buffer> => {
        const path = driver.path(container.dir, container.id);
        // A log that is being closed may have output that is not in its file yet.
        return (
          openLogs.get(path)?.read({ ...options, follow: false }) ??
          readFiles(path, driver.format, options, observe(container.id))
        );
      };
      const local = ownMember(FILE_DRIVERS, name) ?? (name !== 'none' && isCached(logOptions) ? CACHE : undefined);
      const remote = driverOf(name);
      if (remote?.reader) {
        const reader = remote.reader(container);
        return new Stoppable((signal) => readRemote(reader, options, signal, local && (() => fromFiles(local))));
      }
      if (local) return fromFiles(local);
      throw unreadable();
    },
  };
}

/** Reads from the remote side where that can be, else from the local copy. */
async function* readRemote(
  reader: Promise<RemoteReader | undefined>,
  options: LogReadOptions,
  signal: AbortSignal,
  readCopy: (() => AsyncIterableIterator<Buffer>) | undefined,
): AsyncGenerator<Buffer, undefined> {
  const read = (await reader) ?? readCopy;
  if (read === undefined) throw unreadable();
  const log = read(options);
  signal.addEventListener('abort', () => void log.return?.(), { once: true });
  signal.throwIfAborted();
  yield* log;
}

function isOwn(name: string): boolean {
  return name === 'none' || LOG_DRIVERS.includes(name);
}

/** A driver that is a plugin; one that is away is looked for again by each attempt to open a log. */
function pluginDriver(name: string, plugins: LogPlugins | undefined): RemoteDriver | undefined {
  if (plugins === undefined) return undefined;
  return {
    validate: validateCommonOptions,
    open: async (container) => {
      const plugin = plugins.find(name);
      if (plugin === undefined)
        throw invalid(`logger: no log driver named '${name}' is registered`, { code: 'LOG_DRIVER_UNKNOWN' });
      return openPluginSink(plugin, container);
    },
    reader: async (container) => {
      const plugin = plugins.find(name);
      return plugin && (await plugin.canRead()) ? (options) => readPluginLog(plugin, container, options) : undefined;
    },
  };
}

async function openRemoteLog(
  driver: RemoteDriver,
  container: LoggedContainer,
  observer: LogObserver,
  openLogs: Map<string, FileLog>,
): Promise<ContainerLog> {
  const sink = container.isRunning
    ? new LateSink(
        (signal) => driver.open(container, signal),
        (error) => observer.failed(error, 'the remote log cannot be opened again yet'),
      )
    : await driver.open(container, new AbortController().signal);
  try {
    // A line that is missing only in the copy is not lost.
    const copyObserver: LogObserver = {
      ...observer,
      dropped: (lines) => observer.failed(undefined, `${lines} lines are missing in the local copy of the log`),
    };
    const read = await driver.reader?.(container);
    const cache =
      isCached(container.options) && read === undefined
        ? await openFileLog(CACHE, container, {}, copyObserver, openLogs)
        : undefined;
    return new RemoteLog({ sink, cache, read, maxBufferBytes: bufferLimit(container.options), observer });
  } catch (error) {
    sink.close();
    throw error;
  }
}

async function openFileLog(
  driver: FileDriver,
  container: LoggedContainer,
  attrs: Readonly<Record<string, string>>,
  observer: LogObserver,
  openLogs: Map<string, FileLog>,
): Promise<ContainerLog> {
  const policy = driver.policy(container.options);
  const path = driver.path(container.dir, container.id);
  // There is one writer at a time, and the log of the container's last run may still be compressing.
  await openLogs.get(path)?.close();
  // The container's own directory is there, since its record is in it.
  if (dirname(path) !== container.dir) await makeDirectories(dirname(path), { mode: 0o700 });
  const file = await LogFile.open(
    path,
    policy,
    (segment) => driver.format.findEnd(segment),
    (error, what) => observer.failed(error, what),
  );
  const lastTimeNs = await lastTime(file.segment, file.segment.size, driver.format);
  const log: FileLog = new FileLog(driver.isPathShown ? path : '', file, driver.format, observer, {
    attrs,
    lastTimeNs,
    maxBufferBytes: bufferLimit(container.options),
    onClosed: () => {
      if (openLogs.get(path) === log) openLogs.delete(path);
    },
  });
  openLogs.set(path, log);
  return log;
}

/** The driver `none`: only attached clients get the output. */
const noLog: ContainerLog = {
  path: '',
  droppedLines: 0,
  write: () => true,
  onceDrained: (callback) => callback(),
  written: () => undefined,
  close: () => Promise.resolve(),
  read() {
    throw unreadable();
  },
};

function unreadable(): EngineError {
  return notImplemented('configured logging driver does not support reading', { code: 'LOG_UNREADABLE' });
}
