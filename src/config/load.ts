/** Merges defaults, environment, configuration file and flags into one configuration, or says all that is wrong. */
import { invalid, isEngineError, type EngineError } from '../errors/engine-error.js';
import { parseArgv, type CommandLine } from './argv.js';
import { checkValues } from './check-values.js';
import { readConfigFile, type ConfigFile, type FileFault } from './config-file.js';
import { readHost, type Host } from './host.js';
import type { Position } from './json-text.js';
import { noticesOf } from './notices.js';
import { OPTIONS, OPTION_LIST, type NamedOption, type OptionName } from './options.js';
import { resolveConfig } from './resolve.js';
import { rootlessDefaults } from './rootless.js';
import type { Environment, LoadedConfig, Problem, Setting } from './settings.js';
import { showValue } from './show.js';
import { valuesOf } from './values.js';

/**
 * Returns the configuration of a daemon started with these arguments.
 * @throws EngineError invalid, its `details.problems` are `Problem`s.
 */
export function loadConfig(argv: readonly string[], environment: Environment, host?: Host): LoadedConfig {
  return loadMerged(parseArgv(argv), environment, host);
}

/** Does the same as `loadConfig`, from a command line that was parsed before. */
export function loadMerged(commandLine: CommandLine, environment: Environment, host = readHost()): LoadedConfig {
  const named = commandLine.values.get('configFile') as string | undefined;
  const ofUser = rootlessDefaults(environment);
  const isUsers = commandLine.values.get('rootless') === true && commandLine.platform === 'linux';
  const path = named ?? (isUsers ? (ofUser.get('configFile') as string) : OPTIONS.configFile.default);
  const file = readConfigFile(path, named !== undefined);
  const problems: Problem[] = [...file.faults.map(toProblem), ...conflicts(file, commandLine)];
  const isRootless = isUsers || file.values.get('rootless')?.value === true;
  const settings = merge(commandLine, file, environment, isRootless ? ofUser : new Map(), problems);
  const values = valuesOf(settings);
  problems.push(...checkValues(values, settings, commandLine.platform, { host, environment }));
  if (problems.length > 0) throw configError(path, file, problems);
  const { idleKeys } = file;
  const notices = noticesOf(values, settings, environment, idleKeys);
  const config = resolveConfig(values, settings, environment, host);
  return { config, settings, commandLine, environment, host, notices, idleKeys };
}

function toProblem({ kind, key, message, position }: FileFault): Problem {
  return { kind, key, message, position };
}

/**
 * Finds options that are given both by a flag and in the file. One pair is no conflict: unit files start the daemon
 * with `-H fd://`, so that flag only adds the service manager's sockets to the hosts of the file.
 */
function conflicts(file: ConfigFile, { values: flags }: CommandLine): Problem[] {
  return OPTION_LIST.flatMap((option) => {
    const inFile = file.values.get(option.name);
    if (inFile === undefined || !flags.has(option.name)) return [];
    const flag = flags.get(option.name);
    if (option.name === 'hosts' && isActivationOnly(flag)) return [];
    const message = `(from flag: ${showValue(option, flag)}, from file: ${showValue(option, inFile.value)})`;
    return [{ kind: 'conflict' as const, key: option.title, message, position: inFile.position }];
  });
}

function isActivationOnly(hosts: unknown): boolean {
  return Array.isArray(hosts) && hosts.every((host: unknown) => typeof host === 'string' && host.startsWith('fd://'));
}

function merge(
  { values: flags }: CommandLine,
  file: ConfigFile,
  environment: Environment,
  defaults: ReadonlyMap<OptionName, unknown>,
  problems: Problem[],
): Map<OptionName, Setting> {
  return new Map(
    OPTION_LIST.map((option) => [
      option.name,
      settingOf(option, flags, file, environment, problems) ?? {
        value: defaults.get(option.name) ?? option.default,
        source: 'default',
      },
    ]),
  );
}

/** Returns what somebody said; undefined: the default counts. */
function settingOf(
  option: NamedOption,
  flags: CommandLine['values'],
  file: ConfigFile,
  environment: Environment,
  problems: Problem[],
): Setting | undefined {
  const inFile = file.values.get(option.name);
  if (option.name === 'hosts' && inFile && flags.has('hosts')) {
    const hosts = new Set([...(inFile.value as readonly string[]), ...(flags.get('hosts') as readonly string[])]);
    return { value: [...hosts], source: 'file', ...at(inFile.position) };
  }
  if (flags.has(option.name)) return { value: flags.get(option.name), source: 'flag' };
  if (inFile) return { value: inFile.value, source: 'file', ...at(inFile.position) };
  for (const name of option.env ?? []) {
    const text = environment[name];
    if (text === undefined || text === '') continue;
    if (option.envIsSwitch) return { value: true, source: 'environment' };
    try {
      return { value: option.type.fromFlag(text, undefined), source: 'environment' };
    } catch (error) {
      if (!isEngineError(error)) throw error;
      problems.push({ kind: 'invalid', key: name, message: `invalid environment variable ${name}: ${error.message}` });
    }
  }
  return undefined;
}

function at(position: Position | undefined): { position?: Position } {
  return position ? { position } : {};
}

/**
 * Makes one error of all problems: a line for each kind of problem, then a line for each that has a place in the file.
 */
function configError(path: string, file: ConfigFile, problems: readonly Problem[]): EngineError {
  const involved = file.values.size > 0 || file.faults.length > 0;
  const of = (kind: Problem['kind']): Problem[] => problems.filter((problem) => problem.kind === kind);
  const prefix = involved ? `unable to configure the daemon with file ${path}: ` : '';
  const [unknown, conflicting, wrong] = [of('unknown'), of('conflict'), of('invalid')];
  const lines: string[] = [];
  if (unknown.length > 0) {
    lines.push(
      `${prefix}the following directives don't match any configuration option: ` +
        unknown.map(({ key }) => key).join(', '),
    );
    lines.push(
      ...unknown.flatMap(({ key, message, position }) =>
        position || message
          ? [`  ${[key, where(position)].filter(Boolean).join(' ')}${message ? `: ${message}` : ''}`]
          : [],
      ),
    );
  }
  if (conflicting.length > 0) {
    lines.push(
      `${prefix}the following directives are specified both as a flag and in the configuration file: ` +
        conflicting.map(({ key, message }) => `${key}: ${message}`).join(', '),
    );
    lines.push(...conflicting.map(({ key, position }) => `  ${key} ${where(position)} of ${path}`));
  }
  if (wrong.length > 0) {
    const texts = wrong.map(({ key, message, position }) =>
      position ? `${message} (${key} ${where(position)})` : message,
    );
    lines.push(`${prefix}merged configuration validation from file and command line flags failed: ${texts.join('; ')}`);
  }
  return invalid(lines.join('\n'), { code: 'CONFIG_INVALID', details: { problems } });
}

function where(position: Position | undefined): string {
  return position ? `at line ${position.line}, column ${position.column}` : '';
}
