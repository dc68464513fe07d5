/** Turns the name of a container's runtime into the settings that the supervisor gets. */
import { isRuncShim, isShim, type RuntimeEntry } from '../config/runtime-entries.js';
import type { ReloadableConfig } from '../config/config.js';
import { invalid } from '../errors/engine-error.js';
import type { RuncOptions, RuntimeChoice } from '../ports/supervisor.js';
import { wrapRuntime } from '../runtime/runtime-wrapper.js';

/** This is the shim of the reference runtime and of its drop-in replacements. */
export const RUNC_SHIM = 'io.containerd.runc.v2';

export interface RuntimeHost {
  readonly systemdCgroup: boolean;
  readonly noPivotRoot: boolean;
  /** Directory of the small programs that call a runtime with its arguments. */
  readonly wrappersDir: string;
}

/**
 * Returns the runtime of a name. @throws EngineError invalid when the name is neither registered (any more) nor that of
 * a shim.
 */
export function chooseRuntime(runtimes: ReloadableConfig['runtimes'], name: string, host: RuntimeHost): RuntimeChoice {
  const { options = {}, path, runtimeArgs = [], runtimeType } = entryOf(runtimes, name);
  if (runtimeType !== undefined && !isRuncShim(runtimeType)) return { type: runtimeType, options };
  const binaryName =
    path === undefined
      ? options['BinaryName']
      : runtimeArgs.length === 0
        ? path
        : wrapRuntime(host.wrappersDir, path, runtimeArgs);
  return {
    type: RUNC_SHIM,
    systemdCgroup: host.systemdCgroup || options['SystemdCgroup'] === true,
    noPivotRoot: host.noPivotRoot || options['NoPivotRoot'] === true,
    ...(typeof binaryName === 'string' ? { binaryName } : {}),
    takesAnyShim: Object.keys(options).length === 0 && runtimeArgs.length === 0,
    runc: runcOptions(options),
  };
}

/** The types of these options were checked when the configuration was read. */
function runcOptions(options: Readonly<Record<string, unknown>>): RuncOptions {
  const names = {
    root: 'Root',
    noNewKeyring: 'NoNewKeyring',
    shimCgroup: 'ShimCgroup',
    ioUid: 'IoUid',
    ioGid: 'IoGid',
    criuImagePath: 'CriuImagePath',
    criuWorkPath: 'CriuWorkPath',
  } as const satisfies Record<keyof RuncOptions, string>;
  const given = new Map(Object.entries(options));
  return Object.fromEntries(
    Object.entries(names).flatMap(([member, name]) => (given.has(name) ? [[member, given.get(name)]] : [])),
  );
}

function entryOf(runtimes: ReloadableConfig['runtimes'], name: string): RuntimeEntry {
  const registered = Object.hasOwn(runtimes, name) ? runtimes[name] : undefined;
  if (registered) return registered;
  if (name === 'runc') return { path: 'runc' };
  if (isShim(name)) return { runtimeType: name };
  throw invalid(`unknown or invalid runtime name: ${name}`, { code: 'UNKNOWN_RUNTIME' });
}
