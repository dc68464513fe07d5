/**
 * Decides what the command line asks for, and gives the exit code. The daemon's parts are loaded only when the daemon
 * is to run.
 */
import type * as Daemon from './daemon.js';
import type { MigrationRequest } from './migrate.js';
import { hostWithoutDriver } from './config/host.js';
import { startUp } from './config/start-up.js';
import type { DebugSignal } from './sys/process/debug-signal.js';
import { BUILD } from './version.js';

/** Tests run the bundle's daemon with faults in it. */
export { injectFaults } from './actors/kit/faults.js';

const versionText = BUILD.commit === '' ? BUILD.version : `${BUILD.version}, build ${BUILD.commit}`;

/** Loads the daemon's parts. The build calls it too, to compile them beforehand. */
export function loadDaemon(): Promise<typeof Daemon> {
  return import('./daemon.js');
}

/** Takes the flags of `engined migrate` out of a command line. */
function takeRequest(flags: readonly string[]): MigrationRequest & { readonly options: readonly string[] } {
  const request: { to?: string; remove?: string } = {};
  const options: string[] = [];
  for (let i = 0; i < flags.length; i++) {
    const [, name, value] = /^--(to|remove)(?:=(.*))?$/s.exec(flags[i] ?? '') ?? [];
    if (name === 'to' || name === 'remove') request[name] = value ?? flags[++i] ?? '';
    else options.push(flags[i] ?? '');
  }
  return { ...request, options };
}

/** Does what the command line asks for, and returns the exit code. */
export async function runCommandLine(argv: readonly string[], debugSignal: DebugSignal): Promise<number> {
  const [command, ...flags] = argv;
  const isFsck = command === 'fsck';
  const isCheck = command === 'check';
  const isUpgrade = command === 'upgrade';
  const repair = isFsck && flags.includes('--repair');
  const isJson = isCheck && flags.includes('--json');
  const own = isFsck ? '--repair' : '--json';
  const migration = command === 'migrate' ? takeRequest(flags) : undefined;
  const options =
    migration?.options ?? (isUpgrade ? flags : isFsck || isCheck ? flags.filter((flag) => flag !== own) : argv);
  const host = isFsck || migration ? hostWithoutDriver() : undefined;
  const outcome = startUp(options, process.env, versionText, host);
  if (outcome.kind === 'exit') {
    process.stdout.write(outcome.stdout);
    process.stderr.write(outcome.stderr);
    return outcome.code;
  }
  const line = (stream: NodeJS.WritableStream) => (text: string) => void stream.write(`${text}\n`);
  if (migration) {
    const { runMigration } = await import('./migrate.js');
    return runMigration(outcome.loaded, migration, line(process.stdout), line(process.stderr));
  }
  if (isFsck) {
    const { runFsck } = await import('./fsck.js');
    return runFsck(outcome.loaded, { repair }, line(process.stdout), line(process.stderr));
  }
  if (isCheck) {
    const { runCheck } = await import('./check/check.js');
    return runCheck(outcome.loaded.config, isJson, (text) => void process.stdout.write(`${text}\n`));
  }
  if (isUpgrade) {
    const { orderUpgrade } = await import('./handover/order.js');
    return orderUpgrade(outcome.loaded, process.argv[1] ?? '', line(process.stdout), line(process.stderr));
  }
  const { runDaemon } = await loadDaemon();
  // Sockets of clients that do not read their end would keep the process alive.
  return process.exit(await runDaemon(outcome.loaded, debugSignal));
}
