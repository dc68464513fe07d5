/** The unmodified CLI with its plugins buildx and compose, or buildx alone, in a directory of files that are built. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { waitFor } from './wait.js';
import { buildxPlugins, buildxProgram, composePlugins, dockerCli, SHORT_LIVED } from './dockerd.js';

/** A command that hangs is ended after this time. */
const PATIENCE_MS = 120_000;

export interface BuildxResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface BuildxOptions {
  readonly input?: string | Uint8Array;
  /** A part of the directory, where the command runs. */
  readonly in?: string;
  readonly env?: NodeJS.ProcessEnv;
}

export interface RunningBuildx {
  readonly ended: Promise<BuildxResult>;
  /** Resolves when stderr, where progress is shown, or stdout has a match. */
  said(pattern: RegExp): Promise<unknown>;
  kill(signal: NodeJS.Signals): void;
}

export class Buildx {
  readonly directory: string;
  readonly #host: string;
  readonly #alone: boolean;

  /**
   * @param directory is made, for the files that are built and the CLI's own.
   * @param by what buildx is started. The CLI takes half the processor time of a short build: it starts twice, and asks
   *   the plugin first what it is.
   */
  constructor(directory: string, host: string, by: 'itself' | 'docker' = 'itself') {
    this.directory = directory;
    this.#host = host;
    this.#alone = by === 'itself';
    const extra = [buildxPlugins(), composePlugins()].filter((path) => path !== undefined);
    this.write('cli/config.json', JSON.stringify({ cliPluginsExtraDirs: extra }));
  }

  /** Writes a file of the directory. */
  write(name: string, content: string | Uint8Array): void {
    const path = join(this.directory, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
  }

  /** Begins `docker` in the directory, or in a part of it; what buildx does may be started without it. */
  start(args: readonly string[], options: BuildxOptions = {}): RunningBuildx {
    const ofBuildx = args[0] === 'buildx' ? args.slice(1) : args[0] === 'build' ? args : undefined;
    const [program, words] = this.#alone && ofBuildx ? [buildxProgram(), ofBuildx] : [dockerCli(), args];
    const child = spawn(program, words, {
      cwd: join(this.directory, options.in ?? '.'),
      env: {
        ...process.env,
        ...SHORT_LIVED,
        HOME: this.directory,
        DOCKER_HOST: this.#host,
        DOCKER_CONFIG: join(this.directory, 'cli'),
        DOCKER_CLI_HINTS: 'false',
        BUILDKIT_PROGRESS: 'plain',
        ...options.env,
      },
      timeout: PATIENCE_MS,
      killSignal: 'SIGKILL',
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(options.input);
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (piece: string) => (stdout += piece));
    child.stderr.setEncoding('utf8').on('data', (piece: string) => (stderr += piece));
    const ended = once(child, 'close').then(() => ({ status: child.exitCode, stdout, stderr }));
    return {
      ended,
      kill: (signal) => void child.kill(signal),
      said: (pattern) =>
        waitFor(
          () => `${pattern} in ${stderr}${stdout}`,
          () => pattern.exec(stderr) ?? pattern.exec(stdout) ?? undefined,
          PATIENCE_MS,
        ),
    };
  }

  run(args: readonly string[], options: BuildxOptions = {}): Promise<BuildxResult> {
    return this.start(args, options).ended;
  }

  /** Does the same as `run`; throws with all that was printed when the command fails. */
  async ok(args: readonly string[], options: BuildxOptions = {}): Promise<BuildxResult> {
    const result = await this.run(args, options);
    if (result.status !== 0) throw new Error(`docker ${args.join(' ')}: ${result.stderr}${result.stdout}`);
    return result;
  }
}
