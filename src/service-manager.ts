/**
 * The service manager that started the daemon, such as systemd: sockets from it, and what it is told (sd_notify(3)).
 */
import { messageOf } from './errors/engine-error.js';
import type { Logger } from './ports/logger.js';
import { isKeptName, SocketStore } from './socket-store.js';
import { takePassedDescriptors, type ActivationSocket } from './sys/process/activation.js';
import { sendUnixDatagram } from './sys/net/notify-socket.js';

const VARIABLES = ['NOTIFY_SOCKET', 'WATCHDOG_PID', 'WATCHDOG_USEC', 'FDSTORE'] as const;

const FULL =
  'the service manager keeps no more sockets (FileDescriptorStoreMax=): further ones are closed at a restart, and ' +
  'refuse clients until the next process has opened them again';

/** A message that nobody repeats waits so long for a service manager that has much to do. */
const STORE_WAIT_MS = 5_000;

export class ServiceManager {
  /** Sockets that the service manager opened for us. */
  readonly sockets: readonly ActivationSocket[];
  /** Sockets of ours that it keeps for the next process. */
  readonly store: SocketStore;
  readonly #notifySocket: string | undefined;
  readonly #watchdogMs: number;
  readonly #log: Logger;
  #watchdog: NodeJS.Timeout | undefined;
  #isDeaf = false;

  /**
   * Takes what concerns this process out of the environment, so that no child takes it for its own.
   * @param handedOver sockets that a predecessor has given to this process.
   * @throws EngineError invalid for sockets that cannot be served.
   */
  constructor(environment: NodeJS.ProcessEnv, log: Logger, handedOver: ReadonlyMap<string, number> = new Map()) {
    this.#log = log;
    const [path, pid, interval = '', storeSize = ''] = VARIABLES.map((name) => environment[name]);
    for (const name of VARIABLES) delete environment[name];
    this.#notifySocket = path !== undefined && /^[/@]./.test(path) ? path : undefined;
    const isOurs = pid === undefined || Number(pid) === process.pid;
    this.#watchdogMs = isOurs && /^\d+$/.test(interval) ? Number(interval) / 1000 : 0;
    const { sockets, kept } = takePassedDescriptors(environment, isKeptName);
    this.sockets = sockets;
    // systemd says so since version 254; for older ones the unit does.
    const hasStore = this.#notifySocket !== undefined && /^[1-9]\d*$/.test(storeSize);
    const keeper = {
      tell: (text: string, fds?: readonly number[]) => this.#tellStore(text, fds),
      limit: Number(storeSize),
      onFull: () => log.warn({ limit: storeSize }, FULL),
    };
    this.store = new SocketStore(new Map([...kept, ...handedOver]), hasStore ? keeper : undefined);
  }

  /** True when the process that it has started must stay the daemon. */
  get isThere(): boolean {
    return this.#notifySocket !== undefined;
  }

  /** Tells in words what the daemon is doing. */
  status(text: string): void {
    this.#notify(`STATUS=${text}`);
  }

  /**
   * Tells that the listeners are open, and lets go of sockets of an earlier process that none of them is. From now on
   * the service manager notices a daemon that hangs, if it asked for that.
   */
  ready(status: string): void {
    this.store.dropUntaken();
    this.#notify(`READY=1\nSTATUS=${status}`);
    if (this.#watchdogMs === 0 || this.#watchdog !== undefined) return;
    // Twice as often as it must, as systemd advises.
    this.#watchdog = setInterval(() => this.#notify('WATCHDOG=1'), Math.max(1, this.#watchdogMs / 2)).unref();
    this.#notify('WATCHDOG=1');
  }

  /** Tells that a reload begins; `ready` ends it. */
  reloading(): void {
    this.#notify(`RELOADING=1\nMONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
  }

  stopping(): void {
    this.#notify('STOPPING=1\nSTATUS=stopping');
  }

  #notify(state: string): void {
    try {
      // Each line holds one assignment.
      if (this.#notifySocket !== undefined) sendUnixDatagram(this.#notifySocket, state, [], 0);
    } catch (error) {
      // The service manager may be gone or slow; clients are served all the same.
      this.#log.debug({ state, reason: messageOf(error) }, 'the service manager could not be told');
    }
  }

  /**
   * Returns false when nobody has heard it: a socket is lost then, or an old one stays in the way of the next of its
   * name. After one wait in vain there is no other until the service manager is heard of again.
   */
  #tellStore(state: string, fds: readonly number[] = []): boolean {
    if (this.#notifySocket === undefined) return false;
    try {
      sendUnixDatagram(this.#notifySocket, state, fds, this.#isDeaf ? 0 : STORE_WAIT_MS);
      this.#isDeaf = false;
      return true;
    } catch (error) {
      this.#isDeaf = true;
      this.#log.warn({ state, reason: messageOf(error) }, 'the service manager could not be given a socket to keep');
      return false;
    }
  }
}
