/** Writes the daemon's own log, with bunyan, in the two formats that the configuration names. */
import bunyan from 'bunyan';
import type { Logger } from '../ports/logger.js';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'fatal';

export interface LoggerOptions {
  readonly level: LogLevel;
  readonly format: 'text' | 'json';
  /** Full timestamps and no colours, even on a terminal. */
  readonly rawLogs: boolean;
  /** The stream leads to systemd's journal, where a line begins with its priority. */
  readonly isJournal?: boolean;
  readonly stream: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

/** The root logger. Children carry its level, which can change while the daemon runs. */
export interface RootLogger extends Logger {
  setLevel(level: LogLevel): void;
  /** Logs the reason why the daemon ends: no level hides it. */
  fatal(fields: object, message: string): void;
  /** Returns the last lines of the log, oldest first. */
  recent(): readonly string[];
}

interface Record_ {
  readonly level: number;
  readonly msg: string;
  readonly time: Date;
  readonly [field: string]: unknown;
}

/** bunyan adds these members to every record, and no reader of this log wants them. */
const INTERNAL = new Set(['name', 'hostname', 'pid', 'v', 'level', 'msg', 'time']);
const COLOURS: Readonly<Record<string, number>> = { debug: 37, info: 36, warn: 33, error: 31, fatal: 31 };
/** Priorities of syslog by level. systemd takes them off the lines again (sd-daemon(3)). */
const PRIORITIES: ReadonlyMap<string, number> = new Map([
  ['debug', 7],
  ['info', 6],
  ['warn', 4],
  ['error', 3],
  ['fatal', 2],
]);
const SECRET = /^(authorization|password|identitytoken|registrytoken|x-registry-auth|secret)$/i;
/** Fields of log lines are flat or nearly so; what lies deeper is not for a line. */
const MAX_DEPTH = 6;
/** So many lines are kept for people who look into a running daemon. */
const RECENT_LINES = 100;
const RECENT_LINE_CHARS = 1000;
const SCHEME_END = '://';
/** Matches user and password in a URL. */
const AUTHORITY = /[^\s/@:]+:[^\s/"]*@/y;

export function createLogger({ level, format, rawLogs, isJournal = false, stream }: LoggerOptions): RootLogger {
  const colours = format === 'text' && !rawLogs && stream.isTTY === true;
  const shared = { level: bunyan.resolveLevel(level) };
  const recent: string[] = [];
  const write = (record: Record_): void => {
    if (record.level < shared.level) return;
    const line = format === 'json' ? jsonLine(record) : textLine(record, colours);
    recent.push(line.slice(0, RECENT_LINE_CHARS));
    if (recent.length > RECENT_LINES) recent.shift();
    stream.write(isJournal ? `<${PRIORITIES.get(levelName(record.level)) ?? 6}>${line}` : line);
  };
  const root = bunyan.createLogger({
    name: 'engined',
    streams: [
      {
        type: 'raw',
        level: 'debug',
        stream: { write } as unknown as NodeJS.WritableStream,
      },
    ],
  });
  const wrap = (inner: bunyan): Logger => ({
    debug: (fields, message) => void (shared.level <= bunyan.DEBUG && inner.debug(fields, message)),
    info: (fields, message) => inner.info(fields, message),
    warn: (fields, message) => inner.warn(fields, message),
    error: (fields, message) => inner.error(fields, message),
    child: (fields) => wrap(inner.child(fields)),
  });
  return Object.assign(wrap(root), {
    fatal: (fields: object, message: string) => root.fatal(fields, message),
    setLevel: (next: LogLevel) => void (shared.level = bunyan.resolveLevel(next)),
    recent: () => [...recent],
  });
}

function levelName(level: number): string {
  return bunyan.nameFromLevel[level] ?? String(level);
}

/** `level`, `msg` and `time` first, other members after them, so that lines are read by eye as well. */
function jsonLine(record: Record_): string {
  const line = {
    level: levelName(record.level),
    msg: masked(record.msg),
    time: record.time.toISOString(),
    ...fieldsOf(record),
  };
  return `${JSON.stringify(line)}\n`;
}

function textLine(record: Record_, colours: boolean): string {
  const name = levelName(record.level);
  const fields = Object.entries(fieldsOf(record))
    .map(([key, value]) => ` ${key}=${quoted(typeof value === 'string' ? value : JSON.stringify(value))}`)
    .join('');
  if (!colours)
    return `time=${quoted(record.time.toISOString())} level=${name} msg=${quoted(masked(record.msg))}${fields}\n`;
  const time = record.time.toISOString().slice(11, 23);
  const level = `\u001b[${COLOURS[name] ?? 37}m${name.toUpperCase().padEnd(5)}\u001b[0m`;
  return `${level} ${time} ${masked(record.msg)}\u001b[2m${fields}\u001b[0m\n`;
}

function fieldsOf(record: Record_): Record<string, unknown> {
  const shown = Object.entries(record).filter(([key, value]) => !INTERNAL.has(key) && value !== undefined);
  return Object.fromEntries(shown.map(([key, value]) => [key, SECRET.test(key) ? 'xxxxx' : plain(value, MAX_DEPTH)]));
}

/**
 * Returns a value as JSON can render it, without secrets at any depth. Errors come with their causes; a stack only for
 * bugs. A log line never fails: what JSON cannot hold, such as a cycle, is cut off.
 */
function plain(value: unknown, depth: number): unknown {
  if (value instanceof Error) return errorText(value);
  if (typeof value === 'string') return masked(value);
  if (typeof value === 'bigint' || typeof value === 'symbol') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if ('stack' in value && 'message' in value) return masked(String(value.stack));
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'invalid date' : value.toISOString();
  if (ArrayBuffer.isView(value)) return `${value.byteLength} bytes`;
  if (depth === 0) return '…';
  if (Array.isArray(value)) return value.map((item) => plain(item, depth - 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, SECRET.test(key) ? 'xxxxx' : plain(member, depth - 1)]),
  );
}

function errorText(error: Error): string {
  let text = plainText(error);
  for (let { cause } = error; cause instanceof Error; cause = cause.cause) {
    // An error that wraps another often has its text already.
    if (!text.includes(saying(cause))) text = `${text}: ${plainText(cause)}`;
  }
  return masked(text);
}

/** A stack only for what should never have been thrown: system calls and remote calls fail with a code. */
function plainText(error: Error): string {
  return error.name === 'EngineError' || 'code' in error ? saying(error) : (error.stack ?? error.message);
}

/** Returns the message; for a gRPC call what the other side said. */
function saying(error: Error): string {
  return 'details' in error && typeof error.details === 'string' ? error.details : error.message;
}

/** Removes the credentials from URLs. */
function masked(text: string): string {
  let shown = '';
  let from = 0;
  for (let at = text.indexOf(SCHEME_END); at >= 0; at = text.indexOf(SCHEME_END, at + 1)) {
    AUTHORITY.lastIndex = at + SCHEME_END.length;
    if (!AUTHORITY.test(text)) continue;
    shown += `${text.slice(from, at)}${SCHEME_END}xxxxx:xxxxx@`;
    from = AUTHORITY.lastIndex;
  }
  return shown + text.slice(from);
}

function quoted(text: string): string {
  return /^[\w./:@+-]+$/.test(text) ? text : JSON.stringify(text);
}
