/** The log drivers: json-file, local and none. */
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { invalid, messageOf, notImplemented, EngineError } from '../errors/engine-error.js';
import type { ContainerLog, LogDriver } from '../ports/logs.js';
import { FileLog, readFiles } from './file-log.js';
import { jsonFormat } from './json-format.js';
import { logAttributes } from './log-attributes.js';
import { LogFile, type RotationPolicy } from './log-file.js';
import { bufferLimit, jsonFilePolicy, localPolicy, validateLogOptions, type LogOptions } from './log-options.js';
import { localFormat } from './local-format.js';
import { lastTime } from './log-start.js';
import type { LogObserver } from './observer.js';
import type { RecordFormat } from './record-format.js';

interface FileDriver {
  readonly format: RecordFormat;
  readonly isPathShown: boolean;
  path(dir: string, id: string): string;
  policy(options: LogOptions): RotationPolicy;
}

const FILE_DRIVERS: Readonly<Record<string, FileDriver>> = {
  'json-file': { format: jsonFormat, isPathShown: true, path: (dir, id) => join(dir, `${id}-json.log`), policy: jsonFilePolicy },
  local: { format: localFormat, isPathShown: false, path: (dir) => join(dir, 'local-logs', 'container.log'), policy: localPolicy },
};

/** @param observe who is told of what happens to one container's log. */
export function createLogDriver(observe: (containerId: string) => LogObserver): LogDriver {
  /** Logs being written, by the path of their file. */
  const openLogs = new Map<string, FileLog>();
  return {
    validate: validateLogOptions,

    async open(container) {
      try {
        validateLogOptions(container.driver, container.options);
        const driver = FILE_DRIVERS[container.driver];
        return driver ? await openFileLog(driver, container, observe(container.id), openLogs) : noLog;
      } catch (error) {
        const message = `failed to initialize logging driver: ${messageOf(error)}`;
        throw error instanceof EngineError ? new EngineError(error.kind, message, { cause: error, ...(error.code === undefined ? {} : { code: error.code }) }) : new EngineError('internal', message, { cause: error });
      }
    },

    read({ id, dir, driver: name }, options) {
      const driver = FILE_DRIVERS[name];
      if (driver) {
        const path = driver.path(dir, id);
        // A log that is just being closed may have output that is not in its file yet.
        return openLogs.get(path)?.read({ ...options, follow: false }) ?? readFiles(path, driver.format, options, observe(id));
      }
      if (name === 'none') throw unreadable();
      throw invalid(`logger: no log driver named '${name}' is registered`, { code: 'LOG_DRIVER_UNKNOWN' });
    },
  };
}

async function openFileLog(driver: FileDriver, container: Parameters<LogDriver['open']>[0], observer: LogObserver, openLogs: Map<string, FileLog>): Promise<ContainerLog> {
  const policy = driver.policy(container.options);
  const attrs = logAttributes(container);
  const path = driver.path(container.dir, container.id);
  // One writer at a time: the log of the container's last run may still be compressing.
  await openLogs.get(path)?.close();
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await LogFile.open(path, policy, (segment) => driver.format.findEnd(segment), (error, what) => observer.failed(error, what));
  const lastTimeNs = await lastTime(file.segment, file.segment.size, driver.format);
  const options = { attrs, lastTimeNs, maxBufferBytes: bufferLimit(container.options) };
  const log: FileLog = new FileLog(driver.isPathShown ? path : '', file, driver.format, observer, options, () => {
    if (openLogs.get(path) === log) openLogs.delete(path);
  });
  openLogs.set(path, log);
  return log;
}

/** Driver `none`: output is for attached clients only. */
const noLog: ContainerLog = {
  path: '',
  droppedLines: 0,
  write: () => true,
  onceDrained: (callback) => callback(),
  close: () => Promise.resolve(),
  read() {
    throw unreadable();
  },
};

function unreadable(): EngineError {
  return notImplemented('configured logging driver does not support reading', { code: 'LOG_UNREADABLE' });
}
