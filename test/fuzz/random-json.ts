/** JSON bodies whose members have the names that routes know, and types that they do not expect. */
import type { Random } from './random.js';

const NAMES = [
  'Image', 'Cmd', 'Entrypoint', 'Env', 'Labels', 'HostConfig', 'NetworkingConfig', 'Volumes', 'ExposedPorts', 'User', 'WorkingDir', 'Healthcheck', 'StopTimeout', 'StopSignal', 'Tty', 'OpenStdin', 'Hostname',
  'Binds', 'Mounts', 'Tmpfs', 'PortBindings', 'RestartPolicy', 'Memory', 'MemorySwap', 'NanoCpus', 'CpuShares', 'CpusetCpus', 'PidsLimit', 'Ulimits', 'Devices', 'DeviceRequests', 'CapAdd', 'CapDrop', 'Dns', 'ExtraHosts', 'GroupAdd', 'Sysctls',
  'LogConfig', 'Type', 'Config', 'NetworkMode', 'IpcMode', 'PidMode', 'UTSMode', 'CgroupnsMode', 'Privileged', 'ReadonlyRootfs', 'ShmSize', 'SecurityOpt', 'Init', 'Runtime', 'Isolation', 'MaskedPaths', 'ReadonlyPaths', 'BlkioWeightDevice', 'OomScoreAdj',
  'Name', 'Driver', 'DriverOpts', 'Options', 'IPAM', 'Internal', 'EnableIPv6', 'Attachable', 'Container', 'EndpointConfig', 'EndpointsConfig', 'Aliases', 'Links', 'IPAMConfig', 'Force', 'CheckDuplicate',
  'AttachStdin', 'AttachStdout', 'Detach', 'ConsoleSize', 'DetachKeys', 'Test', 'Interval', 'Source', 'Target', 'ReadOnly', 'BindOptions', 'VolumeOptions', 'HostIp', 'HostPort', 'MaximumRetryCount', 'Soft', 'Hard', '__proto__', 'constructor', '',
];
const TEXTS = ['', ' ', 'a', '/', '..', '/..', 'none', 'host', 'default', '0', '-1', '1/tcp', '80/tcp', '8080-8090/udp', 'a:b', ':::', '/a:/b:rw', '\0', '\n', 'é', '\ud800', '💥', 'x'.repeat(5000), '%s%n', '$(id)', 'bridge', 'container:x', 'json-file', '256.1.1.1', '10.0.0.0/99', 'unless-stopped', 'NaN'];
const NUMBERS = [0, -0, 1, -1, 0.5, 2 ** 31, -(2 ** 31), 2 ** 53, 2 ** 63, 1e308, -1e308, 1e-308];

export function randomBody(random: Random): string {
  if (random.chance(0.05)) return random.of(['', ' ', '{', '}', '[]', 'null', 'nul', '1', '"', '{"a":}', '{"a":1,}', '{}{}', '\ufeff{}', '['.repeat(20_000), `{"a":${'['.repeat(5000)}${']'.repeat(5000)}}`, '{"a":1e999}', "{'a':1}"]);
  return JSON.stringify(randomObject(random, 0));
}

/** @param fixed members that are what they are. */
export function randomObject(random: Random, depth: number, fixed: object = {}): object {
  const entries = Array.from({ length: random.below(8) }, () => [random.of(NAMES), randomValue(random, depth + 1)] as const);
  return { ...Object.fromEntries(entries), ...fixed };
}

function randomValue(random: Random, depth: number): unknown {
  const kind = random.below(depth > 4 ? 4 : 7);
  if (kind === 0) return random.of(TEXTS);
  if (kind === 1) return random.of(NUMBERS);
  if (kind === 2) return random.chance(0.5);
  if (kind === 3) return null;
  if (kind === 4) return Array.from({ length: random.below(4) }, () => randomValue(random, depth + 1));
  return randomObject(random, depth);
}
