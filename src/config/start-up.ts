/**
 * Decides what a command line asks for. It imports nothing that is slow to load, so `--validate` answers before the
 * daemon's parts are read.
 */
import { isEngineError } from '../errors/engine-error.js';
import { parseArgv } from './argv.js';
import { helpText } from './help.js';
import type { Host } from './host.js';
import { configSchema } from './json-schema.js';
import { loadMerged } from './load.js';
import type { Environment, LoadedConfig } from './settings.js';

export type StartUp =
  | { readonly kind: 'run'; readonly loaded: LoadedConfig }
  /** There is nothing to run: write the texts and exit. */
  | { readonly kind: 'exit'; readonly code: number; readonly stdout: string; readonly stderr: string };

/**
 * Decides what to do. It never throws for what an operator can get wrong: that is an exit with code 1 and a message.
 */
export function startUp(argv: readonly string[], environment: Environment, version: string, host?: Host): StartUp {
  const exit = (code: number, output: { readonly stdout?: string; readonly stderr?: string }): StartUp => ({
    kind: 'exit',
    code,
    stdout: output.stdout ?? '',
    stderr: output.stderr ?? '',
  });
  try {
    const commandLine = parseArgv(argv);
    if (commandLine.help) return exit(0, { stdout: helpText() });
    if (commandLine.version) return exit(0, { stdout: `engined version ${version}\n` });
    if (commandLine.printConfigSchema) return exit(0, { stdout: `${JSON.stringify(configSchema(), undefined, 2)}\n` });
    if (commandLine.platform === 'windows' && !commandLine.validate) {
      return exit(1, {
        stderr:
          'invalid argument "windows" for "--platform" flag: only --validate checks for it, ' +
          'this daemon runs on Linux\n',
      });
    }
    const loaded = loadMerged(commandLine, environment, host);
    return commandLine.validate ? exit(0, { stderr: 'configuration OK\n' }) : { kind: 'run', loaded };
  } catch (error) {
    if (!isEngineError(error)) throw error;
    return exit(1, { stderr: `${error.message}\n` });
  }
}
