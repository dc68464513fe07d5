/** Passes containerd's log on to the daemon's logger: at the same level, but routine lines at debug. */
import type { Logger } from '../ports/logger.js';
import { ownMember } from '../text/own-member.js';

const KEPT_LINES = 20;
// A line longer than this is no log line; it is cut so that it cannot grow without bound.
const MAX_LINE_LENGTH = 64 * 1024;

type Level = 'debug' | 'info' | 'warn' | 'error';

const levels: Readonly<Record<string, Level>> = {
  trace: 'debug',
  debug: 'debug',
  info: 'info',
  warning: 'warn',
  error: 'error',
  fatal: 'error',
  panic: 'error',
};

/** Lines about every plugin at start, and about every task that ends as it should, begin so; some are warnings. */
const ROUTINE = [
  'loading plugin',
  'skip loading plugin',
  'starting signal loop',
  'shim disconnected',
  'cleaning up after shim',
  'cleaning up dead shim',
  'cleanup warnings',
  'copy shim log',
  'Configuration migrated',
];

interface Line {
  readonly level: Level;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export class LogLines {
  readonly #logger: Logger;
  readonly #onMessage: (message: string) => void;
  readonly #last: string[] = [];
  readonly #lastProblems: string[] = [];
  readonly #decoder = new TextDecoder();
  #rest = '';

  constructor(logger: Logger, onMessage: (message: string) => void) {
    this.#logger = logger;
    this.#onMessage = onMessage;
  }

  push(chunk: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split('\n');
    this.#rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH);
    for (const line of inOne(lines)) this.#forward(parse(line));
  }

  /** Returns the last problems in the log, oldest first; its last lines when there was none. */
  tail(): string {
    return (this.#lastProblems.length > 0 ? this.#lastProblems : this.#last).join('\n');
  }

  #forward({ level, message, fields }: Line): void {
    this.#logger[level](fields, message);
    const { error } = fields;
    const text = typeof error === 'string' ? `${message}: ${error}` : message;
    keep(this.#last, text);
    if (level === 'warn' || level === 'error') keep(this.#lastProblems, text);
    this.#onMessage(message);
  }
}

/**
 * Drops empty lines, and joins several foreign ones in a row, such as the stacks of a panic, to one line. Each line
 * that is passed on costs time, and there may be thousands.
 */
function inOne(lines: readonly string[]): string[] {
  const found: string[] = [];
  let foreign: string[] = [];
  const flush = (): void => {
    if (foreign.length > 0) found.push(foreign.join('\n').slice(0, MAX_LINE_LENGTH));
    foreign = [];
  };
  for (const line of lines) {
    if (line === '') continue;
    if (line.startsWith('{') || line.startsWith('time=')) {
      flush();
      found.push(line);
    } else foreign.push(line);
  }
  flush();
  return found;
}

function keep(lines: string[], line: string): void {
  lines.push(line);
  if (lines.length > KEPT_LINES) lines.shift();
}

function parse(line: string): Line {
  const { level, message, fields } = parseJson(line) ??
    parseShim(line) ?? { level: 'error', message: line, fields: {} };
  return { level: ROUTINE.some((beginning) => message.startsWith(beginning)) ? 'debug' : level, message, fields };
}

function parseJson(line: string): Line | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const { level, msg, time: _time, ...fields } = JSON.parse(line) as Record<string, unknown>;
    return { level: ownMember(levels, String(level)) ?? 'info', message: String(msg), fields };
  } catch {
    return undefined;
  }
}

/** Parses a line of a shim: shims write `key=value` text into containerd's log, whatever its format is. */
function parseShim(line: string): Line | undefined {
  const [, level, message] = /^time="[^"]*" level=(\w+) msg=("(?:[^"\\]|\\.)*"|\S+)/.exec(line) ?? [];
  if (level === undefined || message === undefined) return undefined;
  return { level: ownMember(levels, level) ?? 'info', message: unquote(message), fields: {} };
}

function unquote(text: string): string {
  return text.startsWith('"') ? text.slice(1, -1).replaceAll(/\\(.)/g, '$1') : text;
}
