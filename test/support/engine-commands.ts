/**
 * The commands by which tests prepare a scene, look at it and clean up, done by requests. A start of the CLI takes
 * 30 ms of processor time, more than the daemon needs for most of what it asks. What the CLI itself does is tested with
 * the CLI (test/clients), which also runs every command, and every flag, that is not in the table below.
 */
import { type CliResult, docker, dockerOk } from './cli.js';
import {
  ask,
  type Command,
  CommandFailure,
  create,
  CREATE_FLAGS,
  type Flags,
  refusal,
  run,
  RUN_FLAGS,
  separated,
  startAttached,
} from './container-commands.js';
import type { Engine } from './engine.js';
import { LOOKS } from './looking-commands.js';
import { call } from './http.js';
import { PAIR, split } from './pairs.js';

/** So long the CLI lets a plugin take for an answer. */
const PLUGIN_SECONDS = 30;

const EXEC_FLAGS: Command['flags'] = {
  '-u': 'value',
  '--user': 'value',
  '-w': 'value',
  '--workdir': 'value',
  '-e': PAIR,
  '--env': PAIR,
  '-d': 'alone',
  '--privileged': 'alone',
};

/** By the words with which a command line begins; `run` is given what follows them and the flags. */
const COMMANDS: ReadonlyMap<string, Command> = new Map<string, Command>([
  [
    'rm',
    each(
      { '-f': 'alone', '-v': 'alone', '-fv': 'alone' },
      'DELETE',
      (name, flags) => `/containers/${name}?${removal(flags)}`,
    ),
  ],
  ['network rm', each({}, 'DELETE', (name) => `/networks/${name}`)],
  ['volume rm', each({ '-f': 'alone' }, 'DELETE', (name, flags) => `/volumes/${name}?${removal(flags)}`)],
  ['start', each({}, 'POST', (name) => `/containers/${name}/start`)],
  ['start -a', { flags: {}, isWhole: true, run: startAttached }],
  ['stop', each({ '-t': 'value' }, 'POST', (name, flags) => `/containers/${name}/stop${seconds(flags)}`)],
  ['restart', each({ '-t': 'value' }, 'POST', (name, flags) => `/containers/${name}/restart${seconds(flags)}`)],
  [
    'kill',
    each(
      { '-s': 'value', '--signal': 'value' },
      'POST',
      (name, flags) => `/containers/${name}/kill?signal=${[...flags.values()][0]?.[0] ?? 'KILL'}`,
    ),
  ],
  ['pause', each({}, 'POST', (name) => `/containers/${name}/pause`)],
  ['unpause', each({}, 'POST', (name) => `/containers/${name}/unpause`)],
  ['exec', { flags: EXEC_FLAGS, isWhole: true, run: exec }],
  ['create', { flags: CREATE_FLAGS, run: create }],
  ['run', { flags: RUN_FLAGS, isWhole: true, run }],
  ['commit', { flags: {}, run: commit }],
  ['diff', { flags: {}, run: diff }],
  ['rmi', { flags: { '-f': 'alone' }, run: removeImages }],
  ['tag', { flags: {}, run: tag }],
  ['pull -q', { flags: { '--platform': 'value' }, run: pull }],
  ['wait', { flags: {}, run: wait }],
  ['logs', { flags: {}, run: logs }],
  ...LOOKS,
  ['plugin rm', each({ '-f': 'alone' }, 'DELETE', (name, flags) => `/plugins/${name}?${removal(flags)}`)],
  ['plugin disable', each({ '-f': 'alone' }, 'POST', (name, flags) => `/plugins/${name}/disable?${removal(flags)}`)],
  [
    'plugin enable',
    each(
      { '--timeout': 'value' },
      'POST',
      (name, flags) => `/plugins/${name}/enable?timeout=${flags.get('--timeout')?.[0] ?? PLUGIN_SECONDS}`,
    ),
  ],
  ['plugin set', { flags: {}, run: setPlugin }],
  ['volume create', { flags: { '-d': 'value', '-o': PAIR, '--opt': PAIR, '--label': PAIR }, run: createVolume }],
  [
    'network connect',
    {
      flags: { '--alias': 'value', '--ip': /^[\d.]+$/, '--link': /:/, '--driver-opt': PAIR },
      run: (engine, words, flags) => join(engine, 'connect', words, flags),
    },
  ],
  [
    'network disconnect',
    { flags: { '-f': 'alone' }, run: (engine, words, flags) => join(engine, 'disconnect', words, flags) },
  ],
  [
    'network create',
    {
      flags: {
        '-d': 'value',
        '-o': PAIR,
        '--label': PAIR,
        '--subnet': /^[\da-f.:]+\/\d+$/,
        '--internal': 'alone',
        '--ipv6': 'alone',
      },
      run: createNetwork,
    },
  ],
]);

/** Does what `dockerOk` does: throws unless the command succeeds; gives stdout without the last newline. */
export async function engineOk(engine: Engine, args: readonly string[]): Promise<string> {
  const found = parsed(args);
  if (found === undefined) return dockerOk(engine, args);
  try {
    const printed = await found.command.run(engine, found.words, found.flags);
    if (printed === undefined) return await dockerOk(engine, args);
    return found.command.isWhole ? printed.replace(/\n$/, '') : printed;
  } catch (error) {
    throw new Error(`docker ${args.join(' ')} ended with ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** A command that is refused: its status, and what it says. */
const FAILURE = /^(?<status>\d+): (?<said>[^]*)$/;

/** Does what `docker` does. Of commands that succeed it tells only what they print on stdout. */
export async function attempt(engine: Engine, args: readonly string[]): Promise<CliResult> {
  const found = parsed(args);
  try {
    const printed = await found?.command.run(engine, found.words, found.flags);
    if (printed === undefined) return await docker(engine, args);
    const isLine = !found?.command.isWhole && printed !== '';
    return { status: 0, stdout: isLine ? `${printed}\n` : printed, stderr: '' };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    if (error instanceof CommandFailure) return error;
    const { status, said } = FAILURE.exec(error.message)?.groups ?? {};
    if (status !== undefined && said !== undefined) return { status: Number(status), stdout: '', stderr: said };
    // The daemon is not there, or no more.
    if ('code' in error && /^E[A-Z]+$/.test(String(error.code)))
      return { status: 1, stdout: '', stderr: `error during connect: ${error.message}` };
    throw error;
  }
}

/** Returns nothing for what only the CLI does. */
function parsed(args: readonly string[]): { command: Command; words: readonly string[]; flags: Flags } | undefined {
  const length = COMMANDS.has(args.slice(0, 2).join(' ')) ? 2 : 1;
  const command = COMMANDS.get(args.slice(0, length).join(' '));
  if (command === undefined) return undefined;
  const rest = args.slice(length);
  const flags = new Map<string, readonly string[]>();
  while (rest[0]?.startsWith('-')) {
    const word = rest.shift() ?? '';
    const [flag, attached] = PAIR.test(word) ? split(word) : [word, undefined];
    const form = Object.hasOwn(command.flags, flag) ? command.flags[flag] : undefined;
    if (form === undefined || (form === 'alone' && attached !== undefined)) return undefined;
    const value = form === 'alone' ? '' : (attached ?? rest.shift() ?? '');
    if (form instanceof RegExp && !form.test(value)) return undefined;
    flags.set(flag, [...(flags.get(flag) ?? []), value]);
  }
  return { command, words: rest, flags };
}

/** A command that does the same with each of the names that it is given, and prints them. */
function each(
  flags: Command['flags'],
  method: 'POST' | 'DELETE',
  path: (name: string, flags: Flags) => string,
): Command {
  return {
    flags,
    async run(engine, names, given) {
      const [done, refusals]: [string[], string[]] = [[], []];
      for (const name of names) {
        const reply = await call(engine.socketPath, method, path(encodeURIComponent(name), given));
        if (reply.status < 400) done.push(name);
        // By force, what has gone already is removed too.
        else if (reply.status !== 404 || !(given.has('-f') || given.has('-fv'))) refusals.push(refusal(reply));
      }
      if (refusals.length > 0) throw new Error(`1: ${refusals.join('\n')}`);
      return done.join('\n');
    },
  };
}

const removal = (flags: Flags): string =>
  [...flags.keys()]
    .flatMap((flag) => [flag.includes('f') ? 'force=1' : '', flag.includes('v') ? 'v=1' : ''])
    .filter((word) => word !== '')
    .join('&');

const seconds = (flags: Flags): string => (flags.has('-t') ? `?t=${flags.get('-t')?.[0]}` : '');

async function exec(engine: Engine, [name = '', ...command]: readonly string[], flags: Flags): Promise<string> {
  const all = (...names: readonly string[]): readonly string[] => names.flatMap((flag) => flags.get(flag) ?? []);
  const json = {
    AttachStdout: true,
    AttachStderr: true,
    Cmd: command,
    User: all('-u', '--user').at(-1) ?? '',
    WorkingDir: all('-w', '--workdir').at(-1) ?? '',
    Env: all('-e', '--env'),
    Privileged: flags.has('--privileged'),
  };
  const { Id } = await ask<{ Id: string }>(engine, 'POST', `/containers/${encodeURIComponent(name)}/exec`, json);
  const Detach = flags.has('-d');
  const started = await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach, Tty: false } });
  if (started.status !== 200) throw new Error(`126: ${refusal(started)}`);
  if (Detach) return '';
  const { stdout, stderr } = separated(started.body);
  const { ExitCode } = await ask<{ ExitCode: number }>(engine, 'GET', `/exec/${Id}/json`);
  if (ExitCode !== 0) throw new CommandFailure(ExitCode, stdout, stderr);
  return stdout;
}

const NAMED = /^(?<repo>.+):(?<tag>[\w.-]+)$/;
/** By the kind of a change, as the API numbers them. */
const CHANGES = 'CAD';

async function commit(engine: Engine, [name = '', target = '']: readonly string[]): Promise<string | undefined> {
  const { repo, tag: version } = NAMED.exec(target)?.groups ?? {};
  if (repo === undefined || version === undefined) return undefined;
  const query = new URLSearchParams({ container: name, repo, tag: version });
  return (await ask<{ Id: string }>(engine, 'POST', `/commit?${query.toString()}`)).Id;
}

async function diff(engine: Engine, [name = '']: readonly string[]): Promise<string> {
  const path = `/containers/${encodeURIComponent(name)}/changes`;
  const changes = await ask<readonly { readonly Path: string; readonly Kind: number }[] | null>(engine, 'GET', path);
  return (changes ?? []).map(({ Path, Kind }) => `${CHANGES[Kind]} ${Path}`).join('\n');
}

async function join(
  engine: Engine,
  how: 'connect' | 'disconnect',
  [network = '', container = '']: readonly string[],
  flags: Flags = new Map(),
): Promise<string> {
  const [ip, options] = [flags.get('--ip')?.[0], pairs(flags, '--driver-opt')];
  const EndpointConfig = {
    Aliases: flags.get('--alias') ?? [],
    Links: flags.get('--link') ?? [],
    ...(ip === undefined ? {} : { IPAMConfig: { IPv4Address: ip } }),
    ...(Object.keys(options).length === 0 ? {} : { DriverOpts: options }),
  };
  const json = { Container: container, Force: flags.has('-f'), ...(how === 'connect' && { EndpointConfig }) };
  const reply = await call(engine.socketPath, 'POST', `/networks/${encodeURIComponent(network)}/${how}`, { json });
  if (reply.status >= 400) throw new Error(`1: ${refusal(reply)}`);
  return '';
}

async function removeImages(engine: Engine, names: readonly string[], flags: Flags): Promise<string> {
  const [done, refusals]: [string[], string[]] = [[], []];
  for (const name of names) {
    const path = `/images/${encodeURIComponent(name)}${flags.has('-f') ? '?force=1' : ''}`;
    const reply = await call(engine.socketPath, 'DELETE', path);
    if (reply.status < 400) {
      const items = JSON.parse(reply.text) as readonly Readonly<Record<string, string>>[];
      done.push(...items.flatMap((item) => Object.entries(item).map(([what, which]) => `${what}: ${which}`)));
    } else if (reply.status !== 404 || !flags.has('-f')) refusals.push(refusal(reply));
  }
  if (refusals.length > 0) throw new Error(`1: ${refusals.join('\n')}`);
  return done.join('\n');
}

async function tag(engine: Engine, [source = '', target = '']: readonly string[]): Promise<string | undefined> {
  const { repo, tag: name } = NAMED.exec(target)?.groups ?? {};
  if (repo === undefined || name === undefined) return undefined;
  const query = `repo=${encodeURIComponent(repo)}&tag=${name}`;
  const reply = await call(engine.socketPath, 'POST', `/images/${encodeURIComponent(source)}/tag?${query}`);
  if (reply.status >= 400) throw new Error(`1: ${refusal(reply)}`);
  return '';
}

/** The CLI knows which tag is meant where there is none. */
async function pull(engine: Engine, [name = '']: readonly string[], flags: Flags): Promise<string | undefined> {
  if (!NAMED.test(name)) return undefined;
  const query = new URLSearchParams({ fromImage: name, platform: flags.get('--platform')?.[0] ?? '' });
  const reply = await call(engine.socketPath, 'POST', `/images/create?${query.toString()}`);
  if (reply.status >= 400) throw new Error(`1: ${refusal(reply)}`);
  const { error } = JSON.parse(reply.text.trim().split('\n').at(-1) ?? '') as { readonly error?: string };
  if (error !== undefined) throw new Error(`1: ${error}`);
  return name;
}

async function wait(engine: Engine, names: readonly string[]): Promise<string> {
  const path = (name: string): string => `/containers/${encodeURIComponent(name)}/wait`;
  const ends = names.map((name) => ask<{ StatusCode: number }>(engine, 'POST', path(name)));
  return (await Promise.all(ends)).map(({ StatusCode }) => StatusCode).join('\n');
}

async function logs(engine: Engine, [name = '']: readonly string[]): Promise<string | undefined> {
  const path = `/containers/${encodeURIComponent(name)}`;
  const reply = await call(engine.socketPath, 'GET', `${path}/logs?stdout=1&stderr=1`);
  if (reply.status !== 200) throw new Error(`1: ${refusal(reply)}`);
  if (reply.headers['content-type'] !== 'application/vnd.docker.multiplexed-stream') return undefined;
  return separated(reply.body).stdout.replace(/\n$/, '');
}

const pairs = (flags: Flags, flag: string): Readonly<Record<string, string>> =>
  Object.fromEntries((flags.get(flag) ?? []).map(split));

async function setPlugin(engine: Engine, [name = '', ...json]: readonly string[]): Promise<string> {
  const reply = await call(engine.socketPath, 'POST', `/plugins/${encodeURIComponent(name)}/set`, { json });
  if (reply.status >= 400) throw new Error(`1: ${refusal(reply)}`);
  return '';
}

async function createVolume(engine: Engine, [name = '']: readonly string[], flags: Flags): Promise<string> {
  const json = {
    Name: name,
    Driver: flags.get('-d')?.[0] ?? 'local',
    DriverOpts: { ...pairs(flags, '-o'), ...pairs(flags, '--opt') },
    Labels: pairs(flags, '--label'),
  };
  return (await ask<{ Name: string }>(engine, 'POST', '/volumes/create', json)).Name;
}

async function createNetwork(engine: Engine, [name = '']: readonly string[], flags: Flags): Promise<string> {
  const json = {
    Name: name,
    Driver: flags.get('-d')?.[0] ?? 'bridge',
    Options: pairs(flags, '-o'),
    Labels: pairs(flags, '--label'),
    IPAM: { Driver: 'default', Config: (flags.get('--subnet') ?? []).map((subnet) => ({ Subnet: subnet })) },
    Internal: flags.has('--internal'),
    ...(flags.has('--ipv6') ? { EnableIPv6: true } : {}),
  };
  return (await ask<{ Id: string }>(engine, 'POST', '/networks/create', json)).Id;
}
