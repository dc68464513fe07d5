/** The unmodified CLI with its plugins buildx and compose, in a directory of files that are built. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { buildxPlugins, composePlugins, dockerCli } from './dockerd.js';

/** A command that hangs is ended after this time. */
const PATIENCE_MS = 120_000;

export interface BuildxResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Buildx {
  readonly directory: string;
  readonly #host: string;

  /** @param directory is made, for the files that are built and the CLI's own. */
  constructor(directory: string, host: string) {
    this.directory = directory;
    this.#host = host;
    const extra = [buildxPlugins(), composePlugins()].filter((path) => path !== undefined);
    this.write('cli/config.json', JSON.stringify({ cliPluginsExtraDirs: extra }));
  }

  /** Writes a file of the directory. */
  write(name: string, content: string | Uint8Array): void {
    const path = join(this.directory, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
  }

  /** Runs `docker` in the directory, or in a part of it. */
  async run(
    args: readonly string[],
    options: { readonly input?: string; readonly in?: string; readonly env?: NodeJS.ProcessEnv } = {},
  ): Promise<BuildxResult> {
    const child = spawn(dockerCli(), args, {
      cwd: join(this.directory, options.in ?? '.'),
      env: {
        ...process.env,
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
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
    return { status: child.exitCode, stdout, stderr };
  }

  /** Does the same and returns what was printed; throws with all of it when the command fails. */
  async ok(args: readonly string[], options: Parameters<Buildx['run']>[1] = {}): Promise<BuildxResult> {
    const result = await this.run(args, options);
    if (result.status !== 0) throw new Error(`docker ${args.join(' ')}: ${result.stderr}${result.stdout}`);
    return result;
  }
}
