/** The running daemon as a process: pidfile, signals, its log, the exit code. */
import { rm } from 'node:fs/promises';
import { messageOf } from './errors/engine-error.js';
import type { Config } from './config/config.js';
import { startEngine, type Engine } from './engine.js';
import { limitArenas } from './sys/memory.js';
import { claimPidfile } from './sys/pidfile.js';
import { createLogger } from './telemetry/logger.js';

/** Asked this often to stop, the daemon ends at once. */
const IMPATIENT_SIGNALS = 3;

/** Runs until the daemon is told to stop. Returns the exit code; what went wrong is the last line of the log. */
export async function runDaemon(config: Config): Promise<number> {
  const log = createLogger({ level: config.debug ? 'debug' : config.logLevel, format: config.logFormat, rawLogs: config.rawLogs, stream: process.stderr });
  limitArenas();
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'unhandled rejection'));
  let engine: Engine | undefined;
  let signals = 0;
  const onSignal = (signal: string): void => {
    signals++;
    log.info({ signal }, signals === 1 ? 'stopping' : 'already stopping; a third signal ends the daemon at once');
    if (signals >= IMPATIENT_SIGNALS) process.exit(1);
    engine?.stop();
  };
  process.on('SIGTERM', () => onSignal('SIGTERM'));
  process.on('SIGINT', () => onSignal('SIGINT'));
  try {
    await claimPidfile(config.pidfile);
    try {
      engine = await startEngine(config, log, () => log.info({ addresses: engine?.addresses() }, 'API listens'));
      if (signals > 0) engine.stop();
      const error = await engine.ended;
      if (error) throw error;
      log.info({}, 'stopped');
      return 0;
    } finally {
      await rm(config.pidfile, { force: true });
    }
  } catch (error) {
    log.error({ err: error }, `engined cannot run: ${messageOf(error)}`);
    return 1;
  }
}
