/**
 * The commands by which tests prepare a scene, look at it and clean up, done by requests. A start of the CLI takes
 * 30 ms of processor time, more than the daemon needs for most of what it asks. What the CLI itself does is tested with
 * the CLI (test/clients), which also runs every command, and every flag, that is not in the table below.
 */
import { dockerOk } from './cli.js';
import type { Engine } from './engine.js';
import { call, callJson, type Reply } from './http.js';

/** Without a terminal, output comes in frames that begin with a head of so many bytes. */
const FRAME_HEAD = 8;
const STDERR = 2;

interface Command {
  /** Those that it may have here: true where a value follows. */
  readonly flags: Readonly<Record<string, boolean>>;
  run(engine: Engine, words: readonly string[], flags: ReadonlyMap<string, string>): Promise<string>;
}

/** Those of a container with which nearly all of them are made. */
const CONTAINER_FLAGS = {
  '--name': true,
  '--network': true,
  '--user': true,
  '--init': false,
  '--privileged': false,
  '--rm': false,
};

/** By the words with which a command line begins; `run` is given what follows them and the flags. */
const COMMANDS: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['rm', each({ '-f': false, '-v': false }, 'DELETE', (name, flags) => `/containers/${name}?${removal(flags)}`)],
  ['network rm', each({}, 'DELETE', (name) => `/networks/${name}`)],
  ['volume rm', each({ '-f': false }, 'DELETE', (name, flags) => `/volumes/${name}?${removal(flags)}`)],
  ['start', each({}, 'POST', (name) => `/containers/${name}/start`)],
  ['stop', each({ '-t': true }, 'POST', (name, flags) => `/containers/${name}/stop${seconds(flags)}`)],
  ['restart', each({ '-t': true }, 'POST', (name, flags) => `/containers/${name}/restart${seconds(flags)}`)],
  [
    'kill',
    each({ '-s': true }, 'POST', (name, flags) => `/containers/${name}/kill?signal=${flags.get('-s') ?? 'KILL'}`),
  ],
  ['pause', each({}, 'POST', (name) => `/containers/${name}/pause`)],
  ['unpause', each({}, 'POST', (name) => `/containers/${name}/unpause`)],
  ['exec', { flags: {}, run: exec }],
  ['create', { flags: CONTAINER_FLAGS, run: (engine, words, flags) => create(engine, words, flags, 1) }],
  ['run -d', { flags: CONTAINER_FLAGS, run: runDetached }],
]);

/** Does what `dockerOk` does: throws unless the command succeeds; gives stdout without the last newline. */
export async function engineOk(engine: Engine, args: readonly string[]): Promise<string> {
  const found = parsed(args);
  if (found === undefined) return dockerOk(engine, args);
  try {
    return await found.command.run(engine, found.words, found.flags);
  } catch (error) {
    throw new Error(`docker ${args.join(' ')} ended with ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Returns nothing for what only the CLI does. */
function parsed(
  args: readonly string[],
): { command: Command; words: readonly string[]; flags: Map<string, string> } | undefined {
  const length = COMMANDS.has(args.slice(0, 2).join(' ')) ? 2 : 1;
  const command = COMMANDS.get(args.slice(0, length).join(' '));
  if (command === undefined) return undefined;
  const rest = args.slice(length);
  const flags = new Map<string, string>();
  while (rest[0]?.startsWith('-')) {
    const flag = rest.shift() ?? '';
    const hasValue = Object.hasOwn(command.flags, flag) ? command.flags[flag] : undefined;
    if (hasValue === undefined) return undefined;
    flags.set(flag, hasValue ? (rest.shift() ?? '') : '');
  }
  return { command, words: rest, flags };
}

/** A command that does the same with each of the names that it is given, and prints them. */
function each(
  flags: Command['flags'],
  method: 'POST' | 'DELETE',
  path: (name: string, flags: ReadonlyMap<string, string>) => string,
): Command {
  return {
    flags,
    async run(engine, names, given) {
      const [done, refusals]: [string[], string[]] = [[], []];
      for (const name of names) {
        const reply = await call(engine.socketPath, method, path(encodeURIComponent(name), given));
        if (reply.status < 400) done.push(name);
        // By force, what has gone already is removed too.
        else if (reply.status !== 404 || !given.has('-f')) refusals.push(refusal(reply));
      }
      if (refusals.length > 0) throw new Error(`1: ${refusals.join('\n')}`);
      return done.join('\n');
    },
  };
}

const removal = (flags: ReadonlyMap<string, string>): string =>
  [...flags.keys()].map((flag) => (flag === '-f' ? 'force=1' : 'v=1')).join('&');

const seconds = (flags: ReadonlyMap<string, string>): string => (flags.has('-t') ? `?t=${flags.get('-t')}` : '');

const refusal = ({ text }: Reply): string =>
  `Error response from daemon: ${(JSON.parse(text) as { message: string }).message}`;

async function create(
  engine: Engine,
  [image, ...command]: readonly string[],
  flags: ReadonlyMap<string, string>,
  failure: number,
): Promise<string> {
  const json = {
    Image: image,
    ...(command.length === 0 ? {} : { Cmd: command }),
    User: flags.get('--user') ?? '',
    HostConfig: {
      NetworkMode: flags.get('--network') ?? 'default',
      Privileged: flags.has('--privileged'),
      AutoRemove: flags.has('--rm'),
      ...(flags.has('--init') ? { Init: true } : {}),
    },
  };
  const name = flags.has('--name') ? `?name=${encodeURIComponent(flags.get('--name') ?? '')}` : '';
  const made = await call(engine.socketPath, 'POST', `/containers/create${name}`, { json });
  if (made.status !== 201) throw new Error(`${failure}: ${refusal(made)}`);
  return (JSON.parse(made.text) as { Id: string }).Id;
}

async function runDetached(
  engine: Engine,
  words: readonly string[],
  flags: ReadonlyMap<string, string>,
): Promise<string> {
  const id = await create(engine, words, flags, 125);
  const started = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
  if (started.status >= 400) throw new Error(`125: ${refusal(started)}`);
  return id;
}

async function exec(engine: Engine, [name = '', ...command]: readonly string[]): Promise<string> {
  const json = { AttachStdout: true, AttachStderr: true, Cmd: command };
  const made = await call(engine.socketPath, 'POST', `/containers/${encodeURIComponent(name)}/exec`, { json });
  if (made.status !== 201) throw new Error(`1: ${refusal(made)}`);
  const { Id } = JSON.parse(made.text) as { Id: string };
  const started = await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach: false, Tty: false } });
  if (started.status !== 200) throw new Error(`126: ${refusal(started)}`);
  const { stdout, stderr } = separated(started.body);
  const { ExitCode } = await callJson<{ ExitCode: number }>(engine.socketPath, 'GET', `/exec/${Id}/json`);
  if (ExitCode !== 0) throw new Error(`${ExitCode}: ${stderr}${stdout}`);
  return stdout.replace(/\n$/, '');
}

function separated(framed: Buffer): { readonly stdout: string; readonly stderr: string } {
  const [stdout, stderr]: [Buffer[], Buffer[]] = [[], []];
  for (let at = 0; at < framed.length;) {
    const end = at + FRAME_HEAD + framed.readUInt32BE(at + 4);
    (framed[at] === STDERR ? stderr : stdout).push(framed.subarray(at + FRAME_HEAD, end));
    at = end;
  }
  return { stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
}
