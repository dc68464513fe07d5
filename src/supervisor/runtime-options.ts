/** The options message of a container's shim. */
import { invalid } from '../errors/engine-error.js';
import type { Any } from '@bufbuild/protobuf/wkt';
import type { Owner } from '../ports/id-maps.js';
import type { RuntimeChoice } from '../ports/supervisor.js';
import { packMessage } from './any.js';
import { OptionsSchema as RuncOptionsSchema } from './proto/gen/runc_options_pb.js';
import { OptionsSchema as ShimOptionsSchema } from './proto/gen/runtime_options_pb.js';

/**
 * What the shim is told about its runtime: for the runc shim the binary, its state directory (containerd appends the
 * namespace) and the cgroup driver; for any other shim its own options' type and configuration file, if there are any.
 * @throws EngineError invalid when `TypeUrl` or `ConfigPath` is not a string.
 */
export function packRuntimeOptions(runtime: RuntimeChoice, runcRoot: string | undefined, ioOwner?: Owner): Any | undefined {
  if (runtime.type === 'io.containerd.runc.v2') {
    return packMessage(RuncOptionsSchema, {
      binaryName: runtime.binaryName ?? '',
      root: runcRoot ?? '',
      systemdCgroup: runtime.systemdCgroup ?? false,
      noPivotRoot: runtime.noPivotRoot ?? false,
      ioUid: ioOwner?.uid ?? 0,
      ioGid: ioOwner?.gid ?? 0,
    });
  }
  if (runtime.options === undefined || Object.keys(runtime.options).length === 0) return undefined;
  return packMessage(ShimOptionsSchema, {
    typeUrl: text(runtime.options, 'TypeUrl'),
    configPath: text(runtime.options, 'ConfigPath'),
  });
}

function text(options: Readonly<Record<string, unknown>>, name: string): string {
  const value = options[name] ?? '';
  if (typeof value !== 'string') throw invalid(`runtime option ${name} must be a string`);
  return value;
}
