/** Connects a transfer task with the main thread: progress goes one way, cancellation and renewed sources the other. */
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { cancelled, type EngineError } from '../errors/engine-error.js';
import { factsOf } from '../registry/failure.js';
import type { TlsSettings } from '../registry/http.js';
import { type Outcome, unwrap } from './outcome.js';

/** Where to send requests and what to present there; the main thread sends another when this one is refused. */
export interface Source {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsSettings;
}

/** Every transfer reports these besides its own progress. */
export type LinkReport =
  /** `reason` is the text of the failure. */
  | { readonly type: 'retrying'; readonly seconds: number; readonly reason: string }
  /** The registry refused the source or wants to be left alone: the answer is a new source or the error to end with. */
  | { readonly type: 'refused'; readonly error: Outcome }
  /** The task could use more connections: the answer says how many it gets. */
  | { readonly type: 'connections'; readonly wanted: number };

/** From the main thread to the task. `source` holds an `Outcome` of a Source. */
export type LinkOrder =
  | { readonly type: 'cancel' }
  | { readonly type: 'source'; readonly source: Outcome }
  | { readonly type: 'connections'; readonly granted: number }
  /** Something that only this task understands, and is told once. */
  | { readonly type: 'tell'; readonly value: unknown };

const REPORT_INTERVAL_MS = 100;
const SECOND_MS = 1000;
/** A wait before a retry grows up to this. */
const MAX_PAUSE_MS = 60_000;
/** An attempt that moved so many bytes is followed by the next one at once. */
const GOOD_PROGRESS_BYTES = 1 << 20;
/** Refused sources in a row, without a byte in between, before the task gives up. */
const MAX_REFUSALS = 5;

export interface RetryPolicy {
  /** Number of attempts in a row without progress before the task gives up. */
  readonly maxAttempts: number;
  /** The n-th retry in a row waits n times this long. */
  readonly retryDelayMs: number;
}

export class TaskLink<Report extends { readonly type: string }> {
  readonly #abort = new AbortController();
  readonly #port: MessagePort;
  #onSource: ((source: Outcome) => void) | undefined;
  #onGranted: ((granted: number) => void) | undefined;
  #onTold: (value: unknown) => void = () => undefined;
  /** Resolves with what the main thread tells the task. */
  readonly told = new Promise<unknown>((resolve) => (this.#onTold = resolve));
  #lastReport = 0;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (order: LinkOrder) => this.#take(order));
    // Orders that came while the task was queued are waiting already.
    for (let queued = receiveMessageOnPort(port); queued; queued = receiveMessageOnPort(port))
      this.#take(queued.message as LinkOrder);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  report(report: Report | LinkReport): void {
    this.#port.postMessage(report, []);
  }

  /** Reports at most ten times a second. */
  progress(report: Report): void {
    const now = performance.now();
    if (now - this.#lastReport < REPORT_INTERVAL_MS) return;
    this.#lastReport = now;
    this.report(report);
  }

  /**
   * Runs `attempt` until it succeeds: with a new source when this one is refused, after a pause when the failure may
   * pass. `position` says how far the transfer is: attempts that moved it on do not count. Rejects with the last
   * failure, or with what the main thread chose.
   */
  async persist<T>(
    first: Source,
    { maxAttempts, retryDelayMs }: RetryPolicy,
    position: () => number,
    attempt: (source: Source) => Promise<T>,
  ): Promise<T> {
    let source = first;
    let failures = 0;
    let refusals = 0;
    for (;;) {
      const before = position();
      try {
        return await attempt(source);
      } catch (error) {
        if (this.signal.aborted) throw error;
        const { status, retryable } = factsOf(error);
        const moved = position() - before;
        if (moved > 0) failures = refusals = 0;
        // Refusals are settled by the main thread, which knows the credentials and what other transfers were told.
        const isRefusal = status === 401 || status === 429 || status === 503;
        if (isRefusal && refusals++ < MAX_REFUSALS) source = await this.#replace(outcomeOf(error as EngineError));
        else if (retryable && moved >= GOOD_PROGRESS_BYTES)
          this.report({ type: 'retrying', seconds: 0, reason: (error as EngineError).message });
        else if (retryable && ++failures < maxAttempts)
          await this.#pause(Math.min(retryDelayMs * failures, MAX_PAUSE_MS), (error as EngineError).message);
        else throw error;
      }
    }
  }

  /** Asks for connections besides the one that the task has; they are its own until it ends. */
  async moreConnections(wanted: number): Promise<number> {
    this.signal.throwIfAborted();
    const answer = new Promise<number>((resolve, reject) => {
      this.#onGranted = resolve;
      this.signal.addEventListener('abort', () => reject(this.signal.reason as Error), { once: true });
    });
    this.report({ type: 'connections', wanted });
    return answer;
  }

  close(): void {
    this.#port.close();
  }

  /** Asks for another source. Rejects with the error that the main thread chose. */
  async #replace(failed: Outcome): Promise<Source> {
    const answer = new Promise<Outcome>((resolve, reject) => {
      this.#onSource = resolve;
      this.signal.addEventListener('abort', () => reject(this.signal.reason), { once: true });
    });
    this.report({ type: 'refused', error: failed });
    return unwrap(await answer) as Source;
  }

  async #pause(ms: number, reason: string): Promise<void> {
    const until = performance.now() + ms;
    for (let left = ms; left > 0; left = until - performance.now()) {
      this.report({ type: 'retrying', seconds: Math.ceil(left / SECOND_MS), reason });
      await this.#sleep(Math.min(left, SECOND_MS));
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        clearTimeout(timer);
        reject(this.signal.reason);
      };
      const timer = setTimeout(() => {
        this.signal.removeEventListener('abort', onAbort);
        resolve();
      }, ms);
      this.signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #take(order: LinkOrder): void {
    if (order.type === 'cancel') this.#abort.abort(cancelled('the transfer is not wanted any more'));
    else if (order.type === 'source') this.#onSource?.(order.source);
    else if (order.type === 'connections') this.#onGranted?.(order.granted);
    else this.#onTold(order.value);
  }
}

function outcomeOf({ kind, message, code, details, stack }: EngineError): Outcome {
  return { ok: false, kind, message, code, details, stack };
}
