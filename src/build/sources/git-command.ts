/** Runs git with nothing of the machine's or a user's configuration, without hooks, prompts and local transports. */
import { internal } from '../../errors/engine-error.js';
import { proxyVariables } from '../../registry/proxy.js';
import { GitMoves, type HttpLogin } from './git-moves.js';
import type { RunGitOutput } from './run-git.js';
import type { SourceTasks } from './source-tasks.js';

/** Repositories are fetched by these, those of submodules, too. */
const PROTOCOLS = 'http:https:git:ssh';
/** A server may be slow, but must send a byte from time to time. */
const SILENCE_SECONDS = 120;
const SSH =
  'ssh -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR ' +
  '-o BatchMode=yes -o IdentityFile=none -o ConnectTimeout=30 -o ServerAliveInterval=30 -o ServerAliveCountMax=4';
const CONFIGURATION: readonly (readonly [string, string])[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.autocrlf', 'false'],
  ['core.symlinks', 'true'],
  ['credential.helper', ''],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['fetch.recurseSubmodules', 'false'],
  ['submodule.recurse', 'false'],
  ['advice.detachedHead', 'false'],
  ['init.defaultBranch', 'main'],
  ['safe.directory', '*'],
  ['http.lowSpeedLimit', '1'],
  ['http.lowSpeedTime', String(SILENCE_SECONDS)],
];
/** Other certificates than those of the machine. */
const PASSED_ON = ['PATH', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];

export interface GitAccess {
  readonly login: HttpLogin | undefined;
  /** The socket of an agent. */
  readonly agent: string | undefined;
}

export interface GitRun {
  readonly directory: string;
  readonly access?: GitAccess;
  /** The source is a directory of this daemon's. */
  readonly isLocal?: boolean;
}

/** Runs commands of one build, and shows what they print. */
export class GitCommand {
  constructor(
    private readonly tasks: SourceTasks,
    private readonly output: ((stream: 1 | 2, bytes: Buffer) => void) | undefined,
    private readonly signal: AbortSignal,
  ) {}

  /** Resolves with the standard output. @throws EngineError with what git has said. */
  async run(args: readonly string[], options: GitRun): Promise<string> {
    const { stdout, stderr, exitCode } = await this.attempt(args, options);
    if (exitCode !== 0) throw internal(`git stderr:\n${stderr}: exit status ${exitCode}`, { code: 'GIT_FAILED' });
    return stdout;
  }

  async attempt(args: readonly string[], { directory, access, isLocal = false }: GitRun): Promise<RunGitOutput> {
    const moves = access?.login === undefined ? undefined : new GitMoves(access.login, this.signal);
    for (;;) {
      const variables = environmentOf(access, moves?.configuration(args) ?? [], isLocal);
      const result = await this.tasks.runGit(
        { args: moves?.replace(args) ?? args, directory, variables },
        ({ stream, bytes }) => this.output?.(stream, Buffer.from(bytes)),
        this.signal,
      );
      if (result.exitCode === 0 || !(await moves?.follow(result.stderr))) return result;
    }
  }
}

/** Secrets are in the variables only, which other users cannot see. */
function environmentOf(
  access: GitAccess | undefined,
  moves: readonly (readonly [key: string, value: string])[],
  isLocal: boolean,
): Record<string, string> {
  const pairs = [...CONFIGURATION, ...loginConfiguration(access?.login), ...moves];
  const configuration = pairs.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return {
    ...Object.fromEntries(PASSED_ON.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []))),
    ...proxyVariables(),
    ...Object.fromEntries(configuration),
    GIT_CONFIG_COUNT: String(pairs.length),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    HOME: '/dev/null',
    LC_ALL: 'C',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: isLocal ? 'file' : PROTOCOLS,
    GIT_SSH_COMMAND: SSH,
    GIT_SSH_VARIANT: 'ssh',
    ...(access?.agent !== undefined && { SSH_AUTH_SOCK: access.agent }),
  };
}

/** The login is for one server, whatever it answers. */
function loginConfiguration(login: HttpLogin | undefined): readonly (readonly [key: string, value: string])[] {
  if (login === undefined) return [];
  return [
    [`http.${login.origin}/.extraheader`, `Authorization: ${login.value}`],
    [`http.${login.origin}/.followRedirects`, 'false'],
  ];
}
