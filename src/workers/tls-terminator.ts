/**
 * Has a worker thread end TLS for a listener. A handshake takes half a millisecond of a processor or more, and all that
 * clients send and get is encrypted: on the main thread, other clients would wait for that.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { FollowedTlsRules, TlsPeer, TlsTerminator } from '../ports/tls-terminator.js';
import { closeFd } from '../sys/files/fd.js';
import { SharedFds } from '../sys/files/shared-fds.js';
import { createWorkerPool, type WorkerPool } from './pool.js';
import type { TlsOrder, TlsReport } from './terminate-tls.js';

/** A thread without clients is kept so long for the next one. */
const REST_MS = 5000;

interface Task {
  readonly port: MessagePort;
  readonly held: SharedFds;
  readonly ended: Promise<void>;
}

export class ThreadTerminator implements TlsTerminator {
  readonly #threads: WorkerPool = createWorkerPool({ maxThreads: 1 });
  readonly #stopFollowing: () => void;
  #task: Task | undefined;
  #handshakes = 0;
  #connections = 0;
  #onIdle: (() => void) | undefined;
  #rest: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(
    private readonly rules: FollowedTlsRules,
    private readonly logger: Logger,
    private readonly serve: (fd: number, peer: TlsPeer) => void,
  ) {
    this.#stopFollowing = rules.follow((context) => this.#send({ type: 'use', context }));
  }

  accept(fd: number): void {
    this.#task ??= this.#start();
    this.#task.held.add(fd);
    clearTimeout(this.#rest);
    this.#handshakes++;
    this.#connections++;
    this.#send({ type: 'accept', fd });
  }

  async idle(limitMs: number): Promise<void> {
    if (this.#handshakes === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
      setTimeout(resolve, limitMs).unref();
    });
  }

  close(): void {
    this.#stopFollowing();
    this.#isClosed = true;
  }

  async end(limitMs: number): Promise<void> {
    clearTimeout(this.#rest);
    this.#send({ type: 'end', limitMs });
    const task = this.#task;
    await task?.ended;
    await this.#threads.close();
    task?.held.closeAll();
  }

  /** Starts the thread for its first client, so that nobody pays for a listener that is not used. */
  #start(): Task {
    const { port1: port, port2 } = new MessageChannel();
    const { context, verifies } = this.rules;
    const held = new SharedFds();
    port.on('message', (report: TlsReport) => this.#take(report, held));
    port.unref();
    const input = { rules: { context, verifies }, port: port2, held: held.table };
    const ended = this.#threads
      .run('terminate-tls', input, { isService: true, transferList: [port2] })
      .catch((err: unknown) => {
        this.logger.error({ err }, 'the thread for TLS has failed: its connections are lost');
        held.closeAll();
      })
      .finally(() => this.#forget(task));
    const task = { port, held, ended };
    return task;
  }

  /** Nothing is heard any more of the connections of a task that has ended. */
  #forget(task: Task): void {
    task.port.close();
    if (this.#task !== task) return;
    this.#task = undefined;
    this.#handshakes = this.#connections = 0;
    this.#onIdle?.();
  }

  #send(order: TlsOrder): void {
    this.#task?.port.postMessage(order, []);
  }

  #take(report: TlsReport, held: SharedFds): void {
    if (report.type === 'open') held.remove(report.fd);
    if (report.type !== 'closed' && --this.#handshakes === 0) this.#onIdle?.();
    if (report.type === 'open') return this.#serve(report.fd, report.peer);
    if (--this.#connections === 0) this.#rest = setTimeout(() => this.#letRest(), REST_MS).unref();
    if (report.type === 'failed')
      return this.logger.warn({ reason: report.reason }, 'a connection could not be served');
    // Anybody who reaches the port can cause this, so it is worth no more than a line at the debug level.
    if (report.type === 'refused')
      this.logger.debug({ address: report.address, reason: report.reason }, 'TLS handshake refused');
  }

  /** Ends the task; the next client starts another one. */
  #letRest(): void {
    this.#send({ type: 'end', limitMs: 0 });
    this.#task = undefined;
  }

  #serve(fd: number, peer: TlsPeer): void {
    if (this.#isClosed) return closeFd(fd);
    try {
      this.serve(fd, peer);
    } catch (error) {
      this.logger.warn({ reason: messageOf(error) }, 'a connection could not be served');
    }
  }
}
