/**
 * The command line, in the forms of the pflag library: `--a=b`, `--a b`, `-a b`, `-ab`, `-a=b`, `-abc` for switches.
 */
import { invalid, isEngineError, type EngineError } from '../errors/engine-error.js';
import { OPTION_LIST, type NamedOption, type OptionName } from './options.js';

export interface CommandLine {
  /** Values of the flags that were given. */
  readonly values: ReadonlyMap<OptionName, unknown>;
  readonly help: boolean;
  readonly version: boolean;
  readonly validate: boolean;
  readonly printConfigSchema: boolean;
  readonly platform: 'linux' | 'windows';
}

/** Flags that ask for something instead of setting an option. */
export const COMMANDS: readonly {
  readonly flag: keyof CommandLineSwitches;
  readonly short?: string;
  readonly doc: string;
}[] = [
  { flag: 'help', short: 'h', doc: 'Print usage' },
  { flag: 'print-config-schema', doc: 'Print the JSON Schema of the configuration file and quit' },
  { flag: 'validate', doc: 'Validate the daemon configuration and exit' },
  { flag: 'version', short: 'v', doc: 'Print version information and quit' },
];

interface CommandLineSwitches {
  help: boolean;
  version: boolean;
  validate: boolean;
  'print-config-schema': boolean;
}

const BY_FLAG = new Map(
  OPTION_LIST.flatMap((option) => (option.flag === undefined ? [] : [[option.flag, option] as const])),
);
const BY_SHORT = new Map(
  OPTION_LIST.flatMap((option) => (option.short === undefined ? [] : [[option.short, option] as const])),
);
const COMMAND_BY_SHORT = new Map(
  COMMANDS.flatMap(({ flag, short }) => (short === undefined ? [] : [[short, flag] as const])),
);

const HINT = "\nSee 'engined --help'.";

/**
 * Parses the arguments.
 * @throws EngineError invalid: an unknown flag, a missing or wrong value, an argument that is no flag.
 */
export function parseArgv(argv: readonly string[]): CommandLine {
  const { values, switches, platform } = new ArgvReader(argv);
  dropEmptyHosts(values);
  return {
    values,
    help: switches.help,
    version: switches.version,
    validate: switches.validate,
    printConfigSchema: switches['print-config-schema'],
    platform,
  };
}

/** Reads the words one after another; some flags take the next word as their value. */
class ArgvReader {
  readonly values = new Map<OptionName, unknown>();
  readonly switches: CommandLineSwitches = {
    help: false,
    version: false,
    validate: false,
    'print-config-schema': false,
  };
  platform: CommandLine['platform'] = 'linux';
  readonly #rest: string[];

  constructor(argv: readonly string[]) {
    this.#rest = [...argv];
    for (let word = this.#rest.shift(); word !== undefined; word = this.#rest.shift()) {
      if (word === '--') break;
      if (word.startsWith('--')) this.#long(word);
      else if (word.startsWith('-') && word !== '-') this.#short(word);
      else throw noFlag(word);
    }
    if (this.#rest[0] !== undefined) throw noFlag(this.#rest[0]);
  }

  #long(word: string): void {
    const at = word.indexOf('=');
    const [flag, value] = at === -1 ? [word.slice(2), undefined] : [word.slice(2, at), word.slice(at + 1)];
    const command = COMMANDS.find((candidate) => candidate.flag === flag);
    if (command) return this.#turnOn(command.flag, value);
    if (flag === 'platform') {
      this.platform = platformNamed(value ?? this.#following('--platform'));
      return undefined;
    }
    const option = BY_FLAG.get(flag);
    if (!option) throw invalid(`unknown flag: --${flag}${HINT}`, { code: 'UNKNOWN_FLAG' });
    return this.#set(option, value ?? (option.type.label === '' ? 'true' : this.#following(`--${flag}`)));
  }

  #short(word: string): void {
    for (let index = 1; index < word.length; index++) {
      const letter = word[index] ?? '';
      const remaining = word.slice(index + 1);
      const command = COMMAND_BY_SHORT.get(letter);
      if (command) {
        this.#turnOn(command, undefined);
        continue;
      }
      const option = BY_SHORT.get(letter);
      if (!option) throw invalid(`unknown shorthand flag: '${letter}' in ${word}${HINT}`, { code: 'UNKNOWN_FLAG' });
      if (remaining.startsWith('=')) return this.#set(option, remaining.slice(1));
      if (option.type.label === '') {
        this.#set(option, 'true');
        continue;
      }
      return this.#set(option, remaining === '' ? this.#following(`'${letter}' in ${word}`) : remaining);
    }
    return undefined;
  }

  #set(option: NamedOption, value: string): void {
    try {
      this.values.set(option.name, option.type.fromFlag(value, this.values.get(option.name)));
    } catch (error) {
      if (!isEngineError(error)) throw error;
      const shown = JSON.stringify(option.credentials ? '***' : value);
      throw invalid(`invalid argument ${shown} for "${spellingOf(option)}" flag: ${error.message}`, {
        code: 'INVALID_FLAG',
        cause: error,
      });
    }
  }

  #turnOn(flag: keyof CommandLineSwitches, value: string | undefined): void {
    if (value !== undefined && !['true', 'false', '1', '0'].includes(value))
      throw invalid(`invalid argument ${JSON.stringify(value)} for "--${flag}" flag: must be true or false`, {
        code: 'INVALID_FLAG',
      });
    this.switches[flag] = value === undefined || value === 'true' || value === '1';
  }

  #following(spelling: string): string {
    const value = this.#rest.shift();
    if (value === undefined) throw invalid(`flag needs an argument: ${spelling}${HINT}`, { code: 'INVALID_FLAG' });
    return value;
  }
}

function platformNamed(name: string): CommandLine['platform'] {
  if (name !== 'linux' && name !== 'windows')
    throw invalid(`invalid argument ${JSON.stringify(name)} for "--platform" flag: must be linux or windows`, {
      code: 'INVALID_FLAG',
    });
  return name;
}

function noFlag(word: string): EngineError {
  return invalid(`"engined" accepts no arguments, found ${JSON.stringify(word)}.${HINT}`, { code: 'UNKNOWN_ARGUMENT' });
}

function spellingOf({ flag, short }: NamedOption): string {
  return short === undefined ? `--${flag}` : `-${short}, --${flag}`;
}

/** Removes empty values of `-H`, which mean the same as none. */
function dropEmptyHosts(values: Map<OptionName, unknown>): void {
  const hosts = values.get('hosts') as readonly string[] | undefined;
  const given = hosts?.filter((host) => host !== '');
  if (given === undefined) return;
  if (given.length === 0) values.delete('hosts');
  else values.set('hosts', given);
}
