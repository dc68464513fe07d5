/**
 * The program of the managed plugins in tests: a volume driver with a tmpfs for each volume, a log driver that prints
 * what it takes, a network driver of lonely links, a manager of addresses, and one that says what is allowed. It runs
 * inside a plugin, beside busybox and nothing else, so it imports only what Node brings.
 */
import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync, mkdirSync, readFileSync, type ReadStream, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

type Argument = Readonly<Record<string, string>>;
type Handler = (argument: Argument, response: ServerResponse) => unknown;

const VOLUMES = '/mnt/volumes';
const STATE = '/state.json';
const mode = process.argv[2] ?? 'serve';

/** Uses by volume. They survive the process, as the mounts do not. */
const volumes = new Map<string, string[]>(
  existsSync(STATE) ? (JSON.parse(readFileSync(STATE, 'utf8')) as [string, string[]][]) : [],
);
const save = (): void => writeFileSync(STATE, JSON.stringify([...volumes]));
const busybox = (...args: string[]): void => void execFileSync('/bin/busybox', args);
const isMounted = (place: string): boolean => readFileSync('/proc/self/mounts', 'utf8').includes(` ${place} `);
const known = (name: string): string[] => {
  const uses = volumes.get(name);
  if (uses === undefined) throw new Error(`no volume ${name}`);
  return uses;
};
const shown = (name: string): object => ({
  Name: name,
  Mountpoint: `${VOLUMES}/${name}`,
  Status: { pid: process.pid },
});

const handlers: Readonly<Record<string, Handler>> = {
  'Plugin.Activate': () => ({ Implements: ['VolumeDriver'] }),
  'LogDriver.Capabilities': () => ({ Cap: { ReadLogs: process.argv.includes('reads') } }),
  'LogDriver.ReadLogs': (argument, response) => tell(argument, response),
  'LogDriver.StartLogging': ({ File = '', Info }) => {
    const { Config, ContainerName, ContainerID } = Info as unknown as LogInfo;
    if (Config['refuse'] !== undefined) throw new Error(`refused: ${Config['refuse']}`);
    follow(File, ContainerName, keptOf(ContainerID));
  },
  'LogDriver.StopLogging': ({ File = '' }) => void streams.delete(File),
  'NetworkDriver.GetCapabilities': () => ({ Scope: 'local', ConnectivityScope: 'local' }),
  'NetworkDriver.CreateNetwork': ({ NetworkID = '' }) =>
    busybox('ip', 'link', 'add', linkOf(NetworkID), 'type', 'bridge'),
  'NetworkDriver.DeleteNetwork': ({ NetworkID = '' }) => busybox('ip', 'link', 'del', linkOf(NetworkID)),
  'NetworkDriver.CreateEndpoint': () => ({ Interface: {} }),
  'NetworkDriver.DeleteEndpoint': ({ EndpointID = '' }) => {
    // It has gone with the network namespace, unless it was given back before.
    if (existsSync(`/sys/class/net/${linkOf(EndpointID)}`)) busybox('ip', 'link', 'del', linkOf(EndpointID));
  },
  'NetworkDriver.EndpointOperInfo': () => ({ Value: {} }),
  'NetworkDriver.Join': ({ EndpointID = '' }) => {
    busybox('ip', 'link', 'add', linkOf(EndpointID), 'type', 'veth');
    return { InterfaceName: { SrcName: linkOf(EndpointID), DstPrefix: 'managed' }, DisableGatewayService: true };
  },
  'NetworkDriver.Leave': () => ({}),
  'NetworkDriver.ProgramExternalConnectivity': () => ({}),
  'NetworkDriver.RevokeExternalConnectivity': () => ({}),
  'IpamDriver.GetCapabilities': () => ({}),
  'IpamDriver.GetDefaultAddressSpaces': () => ({ LocalDefaultAddressSpace: 'here', GlobalDefaultAddressSpace: 'all' }),
  'IpamDriver.RequestPool': () => ({ PoolID: 'here/10.97.0.0/24', Pool: '10.97.0.0/24', Data: {} }),
  'IpamDriver.ReleasePool': () => addresses.clear(),
  'IpamDriver.RequestAddress': ({ Address = '' }) => {
    const address = Address === '' ? `10.97.0.${(lastAddress += 7)}` : Address;
    addresses.add(address);
    return { Address: `${address}/24`, Data: {} };
  },
  'IpamDriver.ReleaseAddress': ({ Address = '' }) => {
    if (!addresses.delete(Address)) throw new Error(`${Address} is not in use`);
  },
  'AuthZPlugin.AuthZReq': ({ RequestMethod, RequestUri = '' }) =>
    RequestMethod === 'POST' && RequestUri.endsWith('/volumes/create')
      ? { Allow: false, Msg: 'no volumes here' }
      : { Allow: true },
  'AuthZPlugin.AuthZRes': () => ({ Allow: true }),
  'VolumeDriver.Capabilities': () => ({ Capabilities: { Scope: 'local' } }),
  'VolumeDriver.Create': ({ Name = '' }) => {
    volumes.set(Name, []);
    mkdirSync(`${VOLUMES}/${Name}`, { recursive: true });
    save();
  },
  'VolumeDriver.Remove': ({ Name = '' }) => {
    known(Name);
    volumes.delete(Name);
    rmSync(`${VOLUMES}/${Name}`, { recursive: true, force: true });
    save();
  },
  'VolumeDriver.Get': ({ Name = '' }) => {
    known(Name);
    return { Volume: shown(Name) };
  },
  'VolumeDriver.List': () => ({ Volumes: [...volumes.keys()].map(shown) }),
  'VolumeDriver.Mount': ({ Name = '', ID = '' }) => {
    if (Name === 'astray') return { Mountpoint: '/out/etc' };
    known(Name).push(ID);
    save();
    const place = `${VOLUMES}/${Name}`;
    if (!isMounted(place)) busybox('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', place);
    writeFileSync(`${place}/colour`, process.env['COLOUR'] ?? '');
    return { Mountpoint: place };
  },
  'VolumeDriver.Unmount': ({ Name = '', ID = '' }) => {
    const left = known(Name).filter((use) => use !== ID);
    volumes.set(Name, left);
    save();
    if (left.length === 0 && isMounted(`${VOLUMES}/${Name}`)) busybox('umount', `${VOLUMES}/${Name}`);
  },
};

/** Addresses that are given out, of the only pool. */
const addresses = new Set<string>();
let lastAddress = 0;

/** The name of the link that stands for a network or an endpoint. */
function linkOf(id: string): string {
  return `mp${id.slice(0, 10)}`;
}

const streams = new Map<string, ReadStream>();

interface LogInfo {
  readonly Config: Readonly<Record<string, string>>;
  readonly ContainerName: string;
  readonly ContainerID: string;
}

/** A log that the plugin has: entries behind their lengths, and those who follow it. */
interface Kept {
  readonly entries: Buffer[];
  readonly readers: Set<ServerResponse>;
  isOpen: boolean;
}

const logs = new Map<string, Kept>();

function keptOf(id: string): Kept {
  const kept = logs.get(id) ?? { entries: [], readers: new Set(), isOpen: false };
  logs.set(id, kept);
  return kept;
}

/** Answers with the last entries of a log, and with those to come. */
function tell(argument: Argument, response: ServerResponse): ServerResponse {
  const { Info, Config } = argument as unknown as { Info: LogInfo; Config: { Tail: number; Follow: boolean } };
  const kept = keptOf(Info.ContainerID);
  process.stdout.write(`${Info.ContainerName} asked for ${Config.Tail}\n`);
  response.write(
    Buffer.concat(Config.Tail < 0 ? kept.entries : kept.entries.slice(Math.max(kept.entries.length - Config.Tail, 0))),
  );
  if (Config.Follow && kept.isOpen) kept.readers.add(response);
  else response.end();
  response.on('close', () => {
    kept.readers.delete(response);
    process.stdout.write(`${Info.ContainerName} was told\n`);
  });
  return response;
}

/** Prints the lines of a log: each record is behind its length, and its third field is the line. */
function follow(file: string, prefix: string, kept: Kept): void {
  kept.isOpen = true;
  let rest = Buffer.alloc(0);
  const stream = createReadStream(file);
  streams.set(file, stream);
  stream.on('data', (chunk) => {
    rest = Buffer.concat([rest, Buffer.from(chunk)]);
    while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE()) {
      const record = rest.subarray(4, 4 + rest.readUInt32BE());
      kept.entries.push(Buffer.from(rest.subarray(0, 4 + record.length)));
      for (const reader of kept.readers) reader.write(kept.entries.at(-1));
      rest = rest.subarray(4 + record.length);
      // Source (2 bytes and its text), time (a varint of 9 bytes behind its tag), then the line.
      const at = 2 + (record[1] ?? 0) + 10;
      const length = record[at + 1] ?? 0;
      process.stdout.write(`${prefix} took ${record.subarray(at + 2, at + 2 + length).toString()}\n`);
    }
  });
  stream.on('close', () => {
    kept.isOpen = false;
    for (const reader of kept.readers) reader.end();
    process.stdout.write(`${prefix} ended\n`);
  });
  stream.on('error', () => undefined);
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const handler = handlers[(request.url ?? '').slice(1)];
  if (!handler) return void response.writeHead(404).end('404 page not found\n');
  try {
    const answer = handler((text === '' ? {} : JSON.parse(text)) as Argument, response);
    if (answer !== response) response.end(JSON.stringify(answer ?? {}));
  } catch (error) {
    response.end(JSON.stringify({ Err: error instanceof Error ? error.message : String(error) }));
  }
}

if (mode === 'fail') {
  process.stderr.write('the fault of this plugin\n');
  process.exit(7);
}
process.on('SIGTERM', () => process.exit(0));
if (mode === 'mute') setInterval(() => undefined, 60_000);
else {
  rmSync('/run/docker/plugins/test.sock', { force: true });
  // The deaf one takes calls and never answers.
  const listener = mode === 'deaf' ? () => undefined : serve;
  createServer((request, response) => void listener(request, response)).listen('/run/docker/plugins/test.sock');
}
