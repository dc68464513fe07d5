/** The variables of the process of a RUN. */
import { DEFAULT_PATH, isProxyArg } from '../../../build/dockerfile/scope.js';

export interface EnvironmentParts {
  /** `NAME=value` of ENV and ARG. */
  readonly env: readonly string[];
  readonly buildArgs: ReadonlyMap<string, string | undefined>;
  readonly sshSocket: string | undefined;
}

/** Returns the variables without those that are secrets. HOME is left to the runtime, which knows the user. */
export function stepEnvironment({ env, buildArgs, sshSocket }: EnvironmentParts): string[] {
  const variables = new Map([['PATH', DEFAULT_PATH]]);
  for (const entry of env) {
    const sign = entry.indexOf('=');
    if (sign > 0) variables.set(entry.slice(0, sign), entry.slice(sign + 1));
  }
  for (const [name, value] of buildArgs) {
    // Programs read one or the other.
    if (value !== undefined && value !== '' && isProxyArg(name))
      variables.set(name.toUpperCase(), value).set(name.toLowerCase(), value);
  }
  if (sshSocket !== undefined && !variables.has('SSH_AUTH_SOCK')) variables.set('SSH_AUTH_SOCK', sshSocket);
  return Array.from(variables, ([name, value]) => `${name}=${value}`);
}
