/**
 * The service manager that started the daemon, such as systemd: sockets from it, and what it is told (sd_notify(3)).
 */
import { messageOf } from './errors/engine-error.js';
import type { Logger } from './ports/logger.js';
import { takeActivationSockets, type ActivationSocket } from './sys/process/activation.js';
import { sendUnixDatagram } from './sys/net/notify-socket.js';

const VARIABLES = ['NOTIFY_SOCKET', 'WATCHDOG_PID', 'WATCHDOG_USEC'] as const;

export class ServiceManager {
  /** Sockets that it opened for us. */
  readonly sockets: readonly ActivationSocket[];
  readonly #notifySocket: string | undefined;
  readonly #watchdogMs: number;
  readonly #log: Logger;
  #watchdog: NodeJS.Timeout | undefined;

  /**
   * Takes what concerns this process out of the environment, so that no child takes it for its own.
   * @throws EngineError invalid for sockets that cannot be served.
   */
  constructor(environment: NodeJS.ProcessEnv, log: Logger) {
    this.#log = log;
    const [path, pid, interval = ''] = VARIABLES.map((name) => environment[name]);
    for (const name of VARIABLES) delete environment[name];
    this.#notifySocket = path !== undefined && /^[/@]./.test(path) ? path : undefined;
    const isOurs = pid === undefined || Number(pid) === process.pid;
    this.#watchdogMs = isOurs && /^\d+$/.test(interval) ? Number(interval) / 1000 : 0;
    this.sockets = takeActivationSockets(environment);
  }

  /** What the daemon is doing, in words. */
  status(text: string): void {
    this.#notify(`STATUS=${text}`);
  }

  /** The listeners are open. From now on a daemon that hangs is noticed, if it was asked for that. */
  ready(status: string): void {
    this.#notify(`READY=1\nSTATUS=${status}`);
    if (this.#watchdogMs === 0 || this.#watchdog !== undefined) return;
    // Twice as often as it must, as systemd advises.
    this.#watchdog = setInterval(() => this.#notify('WATCHDOG=1'), Math.max(1, this.#watchdogMs / 2)).unref();
    this.#notify('WATCHDOG=1');
  }

  /** Before a reload; `ready` ends it. */
  reloading(): void {
    this.#notify(`RELOADING=1\nMONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
  }

  stopping(): void {
    this.#notify('STOPPING=1\nSTATUS=stopping');
  }

  #notify(state: string): void {
    if (this.#notifySocket === undefined) return;
    try {
      // One assignment a line.
      sendUnixDatagram(this.#notifySocket, state);
    } catch (error) {
      // It may be gone or slow: no reason to serve clients any less.
      this.#log.debug({ state, reason: messageOf(error) }, 'the service manager could not be told');
    }
  }
}
