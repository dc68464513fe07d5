/** The unmodified docker CLI against a daemon's socket, on pipes or on a terminal. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { dockerCli, SHORT_LIVED } from './dockerd.js';
import type { Engine } from './engine.js';
import { waitFor } from './wait.js';

export interface CliResult {
  /** Exit code, or 128 plus the signal as shells count. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  /** Written to stdin, which then ends. Default: stdin is empty. */
  readonly input?: string;
  /** Runs the command on a pseudo-terminal of this size; stderr comes with stdout then. */
  readonly terminal?: { readonly rows: number; readonly columns: number };
  readonly timeoutMs?: number;
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A docker command that runs: to be written to, watched and waited for. */
export class CliSession {
  stdout = '';
  stderr = '';
  readonly #child: ChildProcess;
  readonly #closed: Promise<unknown>;
  readonly #what: string;

  constructor(engine: Engine, args: readonly string[], options: Pick<CliOptions, 'terminal'> = {}) {
    this.#what = `docker ${args.join(' ')}`;
    const env = {
      ...process.env,
      ...SHORT_LIVED,
      DOCKER_HOST: engine.host,
      DOCKER_CONFIG: join(engine.dir, 'cli'),
      DOCKER_CLI_HINTS: 'false',
    };
    const command = [dockerCli(), ...args];
    const { terminal } = options;
    this.#child =
      terminal === undefined
        ? spawn(command[0] ?? '', command.slice(1), { env })
        : spawn(
            'script',
            [
              '-qefc',
              `stty rows ${terminal.rows} cols ${terminal.columns}; exec ${command.map(quoted).join(' ')}`,
              '/dev/null',
            ],
            { env },
          );
    this.#closed = once(this.#child, 'close');
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    // A command that ends without reading its input is no failure of the test.
    this.#child.stdin?.on('error', () => undefined);
  }

  write(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** Ends stdin. */
  end(): void {
    this.#child.stdin?.end();
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves with the first match in stdout. */
  output(pattern: RegExp, timeoutMs = 15_000): Promise<RegExpExecArray> {
    return waitFor(
      () =>
        `${pattern} from ${this.#what}; it printed ${JSON.stringify(this.stdout)} and ${JSON.stringify(this.stderr)}`,
      () => pattern.exec(this.stdout) ?? undefined,
      timeoutMs,
    );
  }

  /** Resolves when the command has ended; kills it and throws when it takes too long. */
  async ended(timeoutMs = 180_000): Promise<CliResult> {
    const timeUp = Symbol('time is up');
    let timer: NodeJS.Timeout | undefined;
    const winner = await Promise.race([
      this.#closed,
      new Promise((resolve) => (timer = setTimeout(resolve, timeoutMs, timeUp))),
    ]);
    clearTimeout(timer);
    if (winner === timeUp) {
      this.#child.kill('SIGKILL');
      throw new Error(
        `${this.#what} did not end in ${timeoutMs} ms; ` +
          `it printed ${JSON.stringify(this.stdout)} and ${JSON.stringify(this.stderr)}`,
      );
    }
    const { exitCode, signalCode } = this.#child;
    return { status: exitCode ?? (signalCode === 'SIGKILL' ? 137 : 128), stdout: this.stdout, stderr: this.stderr };
  }
}

/** Runs one docker command to its end. */
export function docker(engine: Engine, args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const session = new CliSession(engine, args, options);
  if (options.input !== undefined) session.write(options.input);
  session.end();
  return session.ended(options.timeoutMs);
}

/** Like `docker`, but throws unless the command succeeds; gives stdout without the last newline. */
export async function dockerOk(engine: Engine, args: readonly string[], options: CliOptions = {}): Promise<string> {
  const { status, stdout, stderr } = await docker(engine, args, options);
  if (status !== 0) throw new Error(`docker ${args.join(' ')} ended with ${status}: ${stderr}${stdout}`);
  return stdout.replace(/\n$/, '');
}

/** A terminal of this size is given to commands that are to have one. */
export const TERMINAL = { rows: 30, columns: 120 };

/** Tests of the CLI do this with an engine, which may start later. */
export function cliCalls(engine: () => Engine) {
  const cli = (args: readonly string[], options: CliOptions = {}): Promise<CliResult> =>
    docker(engine(), args, options);
  const ok = (...args: string[]): Promise<string> => dockerOk(engine(), args);
  /** Returns `{{.Field}}` of an object. */
  const field = (name: string, template: string): Promise<string> => ok('inspect', '--format', template, name);
  return { cli, ok, field };
}
