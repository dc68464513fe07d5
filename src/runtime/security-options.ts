/** Parses `HostConfig.SecurityOpt`: `name=value` pairs; the old separator `:` is allowed, too. */
import { invalid } from '../errors/engine-error.js';

export interface SecurityOptions {
  readonly noNewPrivileges: boolean | undefined;
  /** `unconfined`, `builtin` or the JSON text of a profile. */
  readonly seccomp: string | undefined;
  readonly apparmor: string | undefined;
  readonly systemPathsUnconfined: boolean;
  /** Whether the container may write to its control groups; undefined when it is not said. */
  readonly writableCgroups: boolean | undefined;
}

/** Parses the options. @throws EngineError invalid `invalid --security-opt 2: "x=y"`. */
export function parseSecurityOptions(options: readonly string[]): SecurityOptions {
  let noNewPrivileges: boolean | undefined;
  let seccomp: string | undefined;
  let apparmor: string | undefined;
  let systemPathsUnconfined = false;
  let writableCgroups: boolean | undefined;
  for (const option of options) {
    if (option === 'no-new-privileges') {
      noNewPrivileges = true;
      continue;
    }
    if (option === 'writable-cgroups') {
      writableCgroups = true;
      continue;
    }
    // The CLI removes it from the list; other clients may leave it in.
    if (option === 'systempaths=unconfined') {
      systemPathsUnconfined = true;
      continue;
    }
    const [name, value] = split(option);
    if (value === undefined) throw invalid(`invalid --security-opt 1: ${JSON.stringify(option)}`);
    if (name === 'seccomp') seccomp = value;
    else if (name === 'apparmor') apparmor = profileName(value, option);
    else if (name === 'no-new-privileges') noNewPrivileges = parseBoolean(value, option);
    else if (name === 'writable-cgroups') writableCgroups = parseBoolean(value, option);
    // Labels only matter on SELinux hosts, as in the known engine.
    else if (name !== 'label') throw invalid(`invalid --security-opt 2: ${JSON.stringify(option)}`);
  }
  return { noNewPrivileges, seccomp, apparmor, systemPathsUnconfined, writableCgroups };
}

function split(option: string): [string, string | undefined] {
  const at = option.includes('=') ? option.indexOf('=') : option.indexOf(':');
  return at === -1 ? [option, undefined] : [option.slice(0, at), option.slice(at + 1)];
}

/** The kernel takes what is behind a line break for a command of its own. */
function profileName(value: string, option: string): string {
  if (/\p{Cc}/u.test(value)) throw invalid(`invalid --security-opt 2: ${JSON.stringify(option)}`);
  return value;
}

function parseBoolean(value: string, option: string): boolean {
  if (/^(1|t|true)$/i.test(value)) return true;
  if (/^(0|f|false)$/i.test(value)) return false;
  throw invalid(`invalid --security-opt 2: ${JSON.stringify(option)}`);
}
