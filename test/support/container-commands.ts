/** The commands that make containers, done by requests: `docker create` and `docker run` with their usual flags. */
import { text as textOf } from 'node:stream/consumers';
import type { Engine } from './engine.js';
import { call, open, type Reply } from './http.js';
import { MOUNT, mountOf } from './mount-flags.js';
import { PAIR, split } from './pairs.js';

/** A flag is alone, or has any value, or one of this form. */
export type Flag = 'alone' | 'value' | RegExp;
/** The values of the flags of a command line, in their order. */
export type Flags = ReadonlyMap<string, readonly string[]>;

/** A command that is done by requests. */
export interface Command {
  /** Those that it may have here. */
  readonly flags: Readonly<Record<string, Flag>>;
  /** It gives all that is printed; others leave out the last newline. */
  readonly isWhole?: true;
  /** Undefined: only the CLI knows what to print. */
  run(engine: Engine, words: readonly string[], flags: Flags): Promise<string | undefined>;
}

/** Without a terminal, output comes in frames that begin with a head of so many bytes. */
const FRAME_HEAD = 8;
const STDERR = 2;
/** The CLI ends with it when a container could not be run. */
const NOT_RUN = 125;

/** Addresses of version 4 only: the CLI knows more about the others, and about ranges of ports. */
const PORT = /^(?:(?:(?<ip>[\d.]+):)?(?<host>\d*):)?(?<port>\d+)(?:\/(?<protocol>\w+))?$/;
const DURATION = /^(?<count>\d+)(?<unit>ms|s|h)$/;
const NANOSECONDS: ReadonlyMap<string | undefined, number> = new Map([
  ['ms', 1e6],
  ['s', 1e9],
  ['h', 3600e9],
]);
const MEBIBYTES = /^\d+m$/;

export const CREATE_FLAGS: Readonly<Record<string, Flag>> = {
  '--name': 'value',
  '--network': /^[^,=]+$/,
  '--user': 'value',
  '-u': 'value',
  '--hostname': 'value',
  '-h': 'value',
  '--workdir': 'value',
  '-w': 'value',
  '--entrypoint': 'value',
  '--env': PAIR,
  '-e': PAIR,
  '--label': PAIR,
  '-l': PAIR,
  // A volume of a name, or a directory of the host: paths that begin at the CLI's own directory are for the CLI.
  '--volume': /^[^.~]/,
  '-v': /^[^.~]/,
  '--volumes-from': 'value',
  '--publish': PORT,
  '-p': PORT,
  '--expose': PORT,
  '--add-host': 'value',
  '--memory': MEBIBYTES,
  '-m': MEBIBYTES,
  '--memory-swap': MEBIBYTES,
  '--cpus': /^\d*\.?\d+$/,
  '--pids-limit': /^\d+$/,
  '--mount': MOUNT,
  '--volume-driver': 'value',
  '--link': 'value',
  '--sysctl': PAIR,
  // Files of the CLI's directory, and a word that it takes apart itself.
  '--security-opt': /^(?!seccomp=|systempaths=)/,
  '--userns': 'value',
  '--stop-signal': 'value',
  // The images are there.
  '--pull': /^never$/,
  '--health-cmd': 'value',
  '--health-interval': DURATION,
  '--health-timeout': DURATION,
  '--health-start-period': DURATION,
  '--health-start-interval': DURATION,
  '--health-retries': /^\d+$/,
  '--cap-add': 'value',
  '--cap-drop': 'value',
  '--log-driver': 'value',
  '--log-opt': PAIR,
  '--runtime': 'value',
  '--tmpfs': /^[^:]+$/,
  '--restart': /^[a-z-]+(?::\d+)?$/,
  '--stop-timeout': /^\d+$/,
  '--ipc': 'value',
  '--pid': 'value',
  '--init': 'alone',
  '--privileged': 'alone',
  '--read-only': 'alone',
  '--rm': 'alone',
};
export const RUN_FLAGS: typeof CREATE_FLAGS = { ...CREATE_FLAGS, '-d': 'alone' };

/** How a command ended in a container that could be run. */
export class CommandFailure extends Error {
  constructor(
    readonly status: number,
    readonly stdout: string,
    readonly stderr: string,
  ) {
    super(`${status}: ${stderr}${stdout}`);
  }
}

export const refusal = ({ text }: Reply): string =>
  `Error response from daemon: ${(JSON.parse(text) as { message: string }).message}`;

/** Asks, and throws what the CLI would print of a refusal. */
export async function ask<T>(engine: Engine, method: string, path: string, json?: unknown): Promise<T> {
  const reply = await call(engine.socketPath, method, path, json === undefined ? {} : { json });
  if (reply.status >= 400) throw new Error(`1: ${refusal(reply)}`);
  return JSON.parse(reply.text) as T;
}

export async function create(engine: Engine, words: readonly string[], flags: Flags): Promise<string> {
  return createOr(1, engine, words, flags);
}

/** Gives a line with the ID of a container that runs in the background, else its output when it has ended. */
export async function run(engine: Engine, words: readonly string[], flags: Flags): Promise<string> {
  const id = await createOr(NOT_RUN, engine, words, flags);
  if (flags.has('-d')) {
    await startOrGo(engine, id, flags);
    return `${id}\n`;
  }
  const condition = flags.has('--rm') ? 'removed' : 'next-exit';
  return outputOf(engine, id, condition, () => startOrGo(engine, id, flags));
}

/** Starts a container and gives its output when it has ended. Those with a terminal are for the CLI. */
export async function startAttached(engine: Engine, [name = '']: readonly string[]): Promise<string | undefined> {
  const id = encodeURIComponent(name);
  const { Config } = await ask<{ Config: { Tty: boolean } }>(engine, 'GET', `/containers/${id}/json`);
  if (Config.Tty) return undefined;
  return outputOf(engine, id, 'next-exit', async () => {
    const started = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
    if (started.status >= 400) throw new Error(`1: ${refusal(started)}`);
  });
}

async function outputOf(
  engine: Engine,
  id: string,
  condition: 'next-exit' | 'removed',
  begin: () => Promise<void>,
): Promise<string> {
  const output = await open(engine.socketPath, 'POST', `/containers/${id}/attach?stream=1&stdout=1&stderr=1`);
  const ended = await open(engine.socketPath, 'POST', `/containers/${id}/wait?condition=${condition}`);
  try {
    await begin();
    const bytes: Buffer[] = [];
    for await (const chunk of output.message) bytes.push(chunk as Buffer);
    const { stdout, stderr } = separated(Buffer.concat(bytes));
    const { StatusCode } = JSON.parse(await textOf(ended.message)) as { StatusCode: number };
    if (StatusCode !== 0) throw new CommandFailure(StatusCode, stdout, stderr);
    return stdout;
  } finally {
    for (const reply of [output, ended]) reply.close();
  }
}

type Bindings = readonly Readonly<Record<string, string>>[];

/** Returns the health check that the flags ask for. What they do not say comes from the image. */
function healthOf(one: (name: string) => string | undefined): { Healthcheck?: object } {
  const nanoseconds = (name: string): number => {
    const { count = 0, unit } = DURATION.exec(one(name) ?? '')?.groups ?? {};
    return Number(count) * (NANOSECONDS.get(unit) ?? 0);
  };
  const command = one('--health-cmd');
  const check = {
    ...(command === undefined ? {} : { Test: ['CMD-SHELL', command] }),
    Interval: nanoseconds('--health-interval'),
    Timeout: nanoseconds('--health-timeout'),
    StartPeriod: nanoseconds('--health-start-period'),
    StartInterval: nanoseconds('--health-start-interval'),
    Retries: Number(one('--health-retries') ?? 0),
  };
  return Object.values(check).some((value) => value !== 0) ? { Healthcheck: check } : {};
}

/** Returns how much of the machine the flags give to a container. */
function limitsOf(one: (...names: readonly string[]) => string | undefined): object {
  const bytes = (...names: readonly string[]): number => Number.parseInt(one(...names) ?? '0') * 2 ** 20;
  const pids = one('--pids-limit');
  return {
    Memory: bytes('--memory', '-m'),
    MemorySwap: bytes('--memory-swap'),
    NanoCpus: Math.round(Number(one('--cpus') ?? 0) * 1e9),
    ...(pids === undefined ? {} : { PidsLimit: Number(pids) }),
  };
}

/** Returns what a container does not even have as an empty value where no flag gives it. */
function givenOf(flags: Flags, all: (name: string) => readonly string[]): object {
  const pairs = (name: string): Readonly<Record<string, string>> => Object.fromEntries(all(name).map(split));
  return {
    ...(flags.has('--mount') && { Mounts: all('--mount').map(mountOf) }),
    ...(flags.has('--link') && { Links: all('--link') }),
    ...(flags.has('--sysctl') && { Sysctls: pairs('--sysctl') }),
    ...(flags.has('--security-opt') && { SecurityOpt: all('--security-opt') }),
    ...((flags.has('--log-driver') || flags.has('--log-opt')) && {
      LogConfig: { Type: all('--log-driver').at(-1) ?? '', Config: pairs('--log-opt') },
    }),
    ...(flags.has('--runtime') && { Runtime: all('--runtime').at(-1) }),
    ...(flags.has('--init') && { Init: true }),
  };
}

function restartOf(flag = 'no'): object {
  const [name, count = '0'] = flag.split(':');
  return { Name: name, MaximumRetryCount: Number(count) };
}

/** @param status the CLI's when it is refused. */
async function createOr(
  status: number,
  engine: Engine,
  [image, ...command]: readonly string[],
  flags: Flags,
): Promise<string> {
  const all = (...names: readonly string[]): readonly string[] => names.flatMap((name) => flags.get(name) ?? []);
  const one = (...names: readonly string[]): string | undefined => all(...names).at(-1);
  const volumes = all('--volume', '-v');
  const parsed = (values: readonly string[]): Bindings => values.map((value) => PORT.exec(value)?.groups ?? {});
  const [ports, exposed] = [parsed(all('--publish', '-p')), parsed(all('--expose'))];
  const portOf = ({ port, protocol = 'tcp' }: Readonly<Record<string, string>>): string => `${port}/${protocol}`;
  const networks = all('--network');
  const stopTimeout = one('--stop-timeout');
  const json = {
    Image: image,
    ...(command.length === 0 ? {} : { Cmd: command }),
    ...(flags.has('--entrypoint') ? { Entrypoint: all('--entrypoint') } : {}),
    User: one('--user', '-u') ?? '',
    Hostname: one('--hostname', '-h') ?? '',
    WorkingDir: one('--workdir', '-w') ?? '',
    Env: all('--env', '-e'),
    Labels: Object.fromEntries(all('--label', '-l').map(split)),
    Volumes: Object.fromEntries(volumes.filter((value) => !value.includes(':')).map((path) => [path, {}])),
    ExposedPorts: Object.fromEntries([...ports, ...exposed].map((port) => [portOf(port), {}])),
    ...healthOf(one),
    ...(stopTimeout === undefined ? {} : { StopTimeout: Number(stopTimeout) }),
    ...(flags.has('--stop-signal') ? { StopSignal: one('--stop-signal') } : {}),
    HostConfig: {
      ...limitsOf(one),
      NetworkMode: networks[0] ?? 'default',
      Binds: volumes.filter((value) => value.includes(':')),
      VolumesFrom: all('--volumes-from'),
      ...givenOf(flags, all),
      VolumeDriver: one('--volume-driver') ?? '',
      UsernsMode: one('--userns') ?? '',
      PortBindings: Object.fromEntries(
        ports.map((port) => [
          portOf(port),
          ports
            .filter((other) => portOf(other) === portOf(port))
            .map(({ ip = '', host = '' }) => ({ HostIp: ip, HostPort: host })),
        ]),
      ),
      ExtraHosts: all('--add-host'),
      CapAdd: all('--cap-add'),
      CapDrop: all('--cap-drop'),
      Tmpfs: Object.fromEntries(all('--tmpfs').map((path) => [path, ''])),
      RestartPolicy: restartOf(one('--restart')),
      IpcMode: one('--ipc') ?? '',
      PidMode: one('--pid') ?? '',
      Privileged: flags.has('--privileged'),
      ReadonlyRootfs: flags.has('--read-only'),
      AutoRemove: flags.has('--rm'),
    },
    ...(networks.length > 1
      ? { NetworkingConfig: { EndpointsConfig: Object.fromEntries(networks.map((network) => [network, {}])) } }
      : {}),
  };
  const name = one('--name');
  const query = name === undefined ? '' : `?name=${encodeURIComponent(name)}`;
  const made = await call(engine.socketPath, 'POST', `/containers/create${query}`, { json });
  if (made.status !== 201) throw new Error(`${status}: ${refusal(made)}`);
  return (JSON.parse(made.text) as { Id: string }).Id;
}

/** Starts it. As the CLI does, it waits until a container that was not to stay is gone when it cannot be started. */
async function startOrGo(engine: Engine, id: string, flags: Flags): Promise<void> {
  try {
    await start(engine, id);
  } catch (error) {
    if (flags.has('--rm')) await call(engine.socketPath, 'POST', `/containers/${id}/wait?condition=removed`);
    throw error;
  }
}

async function start(engine: Engine, id: string): Promise<void> {
  const started = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
  if (started.status >= 400) throw new Error(`${statusOf(started.text)}: ${refusal(started)}`);
}

/** Returns what the CLI ends with when a container cannot be started: as shells do, where the program is at fault. */
function statusOf(said: string): number {
  if (/executable file not found|no such file or directory/.test(said)) return 127;
  return /permission denied|is a directory/.test(said) ? 126 : NOT_RUN;
}

/** Takes output apart that came without a terminal. */
export function separated(framed: Buffer): { readonly stdout: string; readonly stderr: string } {
  const [stdout, stderr]: [Buffer[], Buffer[]] = [[], []];
  for (let at = 0; at < framed.length;) {
    const end = at + FRAME_HEAD + framed.readUInt32BE(at + 4);
    (framed[at] === STDERR ? stderr : stdout).push(framed.subarray(at + FRAME_HEAD, end));
    at = end;
  }
  return { stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
}
