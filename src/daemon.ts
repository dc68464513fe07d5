/** The running daemon as a process: pidfile, locks, signals, its log, the exit code. */
import { isEngineError, messageOf } from './errors/engine-error.js';
import type { Roots } from './composition/roots.js';
import { openDataRoot } from './composition/data-root.js';
import { checkState, noteState } from './inventory/state-version.js';
import { LiveConfig, type ReloadResult } from './config/live-config.js';
import type { LoadedConfig } from './config/settings.js';
import { startEngine, type Engine } from './engine.js';
import { Predecessor } from './handover/predecessor.js';
import { Succession } from './handover/successor.js';
import type { Logger } from './ports/logger.js';
import { ServiceManager } from './service-manager.js';
import { endAtOnce } from './sys/process/end-at-once.js';
import type { DebugSignal } from './sys/process/debug-signal.js';
import { lockDirectory, type LockedDirectory } from './sys/files/directory-lock.js';
import { limitHeaps } from './sys/process/memory.js';
import { claimPidfile } from './sys/process/pidfile.js';
import { Reserve } from './sys/files/reserve.js';
import { openIdMaps, OWN_USERS, sharedRanges } from './sys/users/remapped-user.js';
import { leadsToJournal } from './telemetry/journal.js';
import { openTimeline } from './telemetry/timeline.js';
import { createLogger, type LogLevel, type RootLogger } from './telemetry/logger.js';
import { StateDump } from './telemetry/state-dump.js';
import { BUILD } from './version.js';

/** After so many requests to stop, the daemon ends at once. */
const IMPATIENT_SIGNALS = 3;

function logLevel({ current, fixed }: LiveConfig): LogLevel {
  return current.debug ? 'debug' : fixed.logLevel;
}

function openLog(config: LiveConfig): RootLogger {
  const { logFormat, rawLogs } = config.fixed;
  return createLogger({
    level: logLevel(config),
    format: logFormat,
    rawLogs,
    isJournal: leadsToJournal(process.env, process.stderr.fd),
    stream: process.stderr,
  });
}

/** Runs until the daemon is told to stop, and returns the exit code. The last line of the log says what went wrong. */
export async function runDaemon(loaded: LoadedConfig, debugSignal: DebugSignal): Promise<number> {
  const config = new LiveConfig(loaded);
  const log = openLog(config);
  limitHeaps();
  openTimeline(process.env);
  const told = new Set<string>();
  tellNotices(config, told, log);
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'unhandled rejection'));
  let engine: Engine | undefined;
  let manager: ServiceManager | undefined;
  let signals = 0;
  const onSignal = (signal: string): void => {
    signals++;
    log.info({ signal }, signals === 1 ? 'stopping' : 'already stopping; a third signal ends the daemon at once');
    if (signals >= IMPATIENT_SIGNALS) endAtOnce(1);
    manager?.stopping();
    engine?.stop();
  };
  process.on('SIGTERM', () => onSignal('SIGTERM'));
  process.on('SIGINT', () => onSignal('SIGINT'));
  config.onReload((result) => {
    log.setLevel(logLevel(config));
    logReload(log, result);
    tellNotices(config, told, log);
  });
  let isServing = false;
  const ready = (status: string): void => manager?.ready(`${status}, serving ${engine?.addresses().join(' ')}`);
  process.on('SIGHUP', () => {
    const isTold = isServing;
    if (isTold) manager?.reloading();
    void config.reload({ dryRun: false }).then(({ ok }) => {
      if (isTold && signals === 0) ready(ok ? 'reloaded' : 'reload failed, the configuration stays as it was');
    });
  });
  const succession = Succession.of(process.env);
  try {
    const given = await succession?.take(config.fixed.dataRoot);
    const present = new ServiceManager(process.env, log, given);
    manager = present;
    present.status('starting');
    await serveUntilStopped(config, log, present, {
      isStopping: () => signals > 0,
      start: async (roots, onServing) => {
        listenForDumps(debugSignal, roots.execRoot, log, () => engine?.state());
        engine = await startEngine(config, roots, present, log, () => {
          log.info({ addresses: engine?.addresses() }, 'API listens');
          isServing = true;
          ready('started');
          succession?.serves();
          onServing();
        });
        return engine;
      },
    });
    log.info({}, 'stopped');
    return 0;
  } catch (error) {
    // An expected failure says everything in its message, so its stack is not logged.
    const fields = isEngineError(error) && error.kind !== 'internal' ? {} : { err: error };
    log.fatal(fields, `engined cannot run: ${messageOf(error)}`);
    return 1;
  }
}

interface EngineStarter {
  readonly isStopping: () => boolean;
  readonly start: (roots: Roots, onServing: () => void) => Promise<Engine>;
}

/**
 * Runs an engine until it is told to stop or a successor serves. It is started again when a successor fails.
 * @throws what makes an engine end by itself.
 */
async function serveUntilStopped(
  config: LiveConfig,
  log: Logger,
  { store, isThere: isManaged }: ServiceManager,
  { isStopping, start }: EngineStarter,
): Promise<void> {
  let engine: Engine | undefined;
  const onPrepared = (): void => {
    store.handOver();
    engine?.stop({ handsOver: true });
  };
  const predecessor = new Predecessor({ execRoot: config.fixed.execRoot, log, isManaged, onPrepared });
  const serve = (): Promise<void> =>
    owning(config, log, async (roots) => {
      engine = await start(roots, () => predecessor.open());
      if (isStopping()) engine.stop();
      const error = await engine.ended;
      predecessor.close();
      if (error) throw error;
    });
  await serve();
  while (predecessor.isHandingOver && !(await predecessor.complete(store.unused))) {
    store.resume();
    if (!isStopping()) await serve();
  }
}

/** Runs `work` while the pidfile and the directories are this daemon's. */
async function owning(config: LiveConfig, log: Logger, work: (roots: Roots) => Promise<void>): Promise<void> {
  const locks: LockedDirectory[] = [];
  const pid = await claimPidfile(config.fixed.pidfile);
  try {
    await work(await lockRoots(config, locks, log));
  } finally {
    await Promise.all(locks.map((lock) => lock.release()));
    await pid.release();
  }
}

function listenForDumps(
  signal: DebugSignal,
  dir: string,
  log: RootLogger,
  state: () => Readonly<Record<string, unknown>> | undefined,
): void {
  const parts = (): Readonly<Record<string, unknown>> => state() ?? { phase: 'composing' };
  const dump = new StateDump({ dir, build: BUILD, log, parts, logLines: () => log.recent() });
  signal.listen(() => dump.request());
}

/** Locks the two directories of the daemon. They are read once, because a reload cannot change them. */
async function lockRoots(config: LiveConfig, locks: LockedDirectory[], log: Logger): Promise<Roots> {
  const { dataRoot, execRoot } = config.fixed;
  const data = await lockDirectory('data-root', dataRoot);
  locks.push(data);
  await checkState(data.path);
  const reserve = new Reserve(data.path);
  if (await reserve.open())
    log.warn(
      { dataRoot },
      'the disk of the data root is full: the space that was kept for this start is used; ' +
        'prune, or free some otherwise',
    );
  const exec = await lockDirectory('exec-root', execRoot);
  locks.push(exec);
  await reserve.urgent(() => noteState(data.path));
  const { usernsRemap } = config.fixed;
  const idMaps = usernsRemap === '' ? undefined : openIdMaps(usernsRemap);
  if (usernsRemap !== '' && usernsRemap !== OWN_USERS && !idMaps)
    log.warn({}, `userns-remap ${usernsRemap}: root cannot be remapped to itself; users are not remapped`);
  for (const shared of idMaps ? sharedRanges(usernsRemap) : []) log.warn({}, `userns-remap ${usernsRemap}: ${shared}`);
  const roots = { dataRoot: data.path, execRoot: exec.path };
  return {
    ...roots,
    ...(await openDataRoot(roots, idMaps, { ...config.fixed, features: config.current.features }, log)),
    supervisorRoot: data.path,
    reserve,
  };
}

/** Logs each notice once in the life of the daemon. */
function tellNotices({ notices }: LiveConfig, told: Set<string>, log: Logger): void {
  for (const { key, message } of notices) {
    if (!told.has(message)) log.warn({ key }, message);
    told.add(message);
  }
}

function logReload(log: Logger, { ok, message, entries }: ReloadResult): void {
  if (!ok) return log.error({}, `reload failed, the configuration stays as it was: ${message}`);
  for (const { key, verdict, before, after } of entries) {
    if (verdict === 'needs-restart') log.warn({ key, before, after }, 'reload: takes effect only after a restart');
    else log.info({ key, before, after }, verdict === 'removed' ? 'reload: back to its default' : 'reload: applied');
  }
  return log.info({}, 'configuration reloaded');
}
