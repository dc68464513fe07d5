/**
 * Secrets in variables. The supervisor keeps the specification of each container in its database, where deleted bytes
 * stay on the disk. So the runtime gets another specification than the supervisor: one in memory.
 */
import { invalid } from '../../../errors/engine-error.js';
import type { OciSpec, RuntimeChoice } from '../../../ports/supervisor.js';
import { encodeOci } from '../../../supervisor/oci-json.js';
import type { StepPlace } from './step-place.js';

const ROOT = { uid: 0, gid: 0 };

/** Returns a runtime that adds these variables (`NAME=value`) to the process of the container. */
export async function withHiddenEnvironment(
  runtime: RuntimeChoice,
  spec: OciSpec,
  env: readonly string[],
  place: StepPlace,
): Promise<RuntimeChoice> {
  if (env.length === 0) return runtime;
  if (runtime.options !== undefined)
    throw invalid('secrets as variables need the runtime runc, or a replacement of it');
  const whole = await place.file(encodeOci({ ...spec, process: withVariables(spec['process'], env) }), 0o600, ROOT);
  // The shim calls the runtime in the directory of the specification.
  const script = [
    '#!/bin/sh',
    `case " $* " in *" create "*) ln -sf ${quoted(whole)} config.json || exit ;; esac`,
    `exec ${quoted(runtime.binaryName ?? 'runc')} "$@"`,
  ];
  return { ...runtime, takesAnyShim: false, binaryName: await place.file(`${script.join('\n')}\n`, 0o700, ROOT) };
}

function withVariables(process: unknown, env: readonly string[]): unknown {
  const { env: before, ...rest } = process as { readonly env: readonly string[] };
  const names = new Set(env.map((entry) => entry.split('=', 1)[0]));
  return { ...rest, env: [...before.filter((entry) => !names.has(entry.split('=', 1)[0])), ...env] };
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
