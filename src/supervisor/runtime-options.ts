/** The options message of a container's shim. */
import { invalid } from '../errors/engine-error.js';
import type { Any } from '@bufbuild/protobuf/wkt';
import type { Owner } from '../ports/id-maps.js';
import type { RuntimeChoice } from '../ports/supervisor.js';
import { packMessage } from './any.js';
import { OptionsSchema as RuncOptionsSchema } from './proto/gen/runc_options_pb.js';
import { OptionsSchema as ShimOptionsSchema } from './proto/gen/runtime_options_pb.js';
import { toToml } from './toml.js';

/** The shim of the reference runtime and its drop-ins. */
export const RUNC_SHIM = 'io.containerd.runc.v2';
/** The version of the protocol that shims speak which serve tasks of others. */
const SHIM_VERSION = 3;

/**
 * Returns the options that the shim gets about its runtime. The runc shim gets the binary, its state directory
 * (containerd appends the namespace) and the cgroup driver. Any other shim gets the type and configuration file of its
 * own options, and all other members as TOML, if there are any.
 * @param shim the address of the shim that serves the task; only with the runc shim.
 * @throws EngineError invalid when `TypeUrl` or `ConfigPath` is not a string.
 */
export function packRuntimeOptions(
  runtime: RuntimeChoice,
  runcRoot: string | undefined,
  ioOwner?: Owner,
  shim?: string,
): Any | undefined {
  const { runc = {} } = runtime;
  if (runtime.type === RUNC_SHIM) {
    return packMessage(RuncOptionsSchema, {
      binaryName: runtime.binaryName ?? '',
      root: runc.root ?? runcRoot ?? '',
      systemdCgroup: runtime.systemdCgroup ?? false,
      noPivotRoot: runtime.noPivotRoot ?? false,
      // With remapped users, the root of the containers must be able to open the pipes.
      ioUid: ioOwner?.uid ?? runc.ioUid ?? 0,
      ioGid: ioOwner?.gid ?? runc.ioGid ?? 0,
      noNewKeyring: runc.noNewKeyring ?? false,
      shimCgroup: runc.shimCgroup ?? '',
      criuImagePath: runc.criuImagePath ?? '',
      criuWorkPath: runc.criuWorkPath ?? '',
      ...(shim !== undefined && { taskApiAddress: shim, taskApiVersion: SHIM_VERSION }),
    });
  }
  if (runtime.options === undefined || Object.keys(runtime.options).length === 0) return undefined;
  const { TypeUrl, ConfigPath, ...others } = runtime.options;
  return packMessage(ShimOptionsSchema, {
    typeUrl: text(TypeUrl, 'TypeUrl'),
    configPath: text(ConfigPath, 'ConfigPath'),
    configBody: Buffer.from(toToml(others)),
  });
}

function text(value: unknown = '', name: string): string {
  if (typeof value !== 'string') throw invalid(`runtime option ${name} must be a string`);
  return value;
}
