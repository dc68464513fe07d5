import type { Logger } from '../../src/ports/logger.js';

/** A logger for tests that look at results only. */
export const silentLog: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silentLog,
};
