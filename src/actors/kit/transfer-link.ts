/**
 * The main thread's end of a transfer task's link: it renews a grant that a registry refused, and passes cancellation
 * on.
 */
import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { isEngineError } from '../../errors/engine-error.js';
import type { Grant, RegistryAccess } from '../../registry/access.js';
import { failure, type Outcome, unwrap } from '../../workers/outcome.js';
import type { LinkOrder, LinkReport, Source } from '../../workers/task-link.js';

export interface TransferLinkOptions<Report> {
  readonly access: RegistryAccess;
  readonly scope: string;
  /** The task starts with this grant. */
  readonly grant: Grant;
  readonly sourceOf: (grant: Grant) => Source;
  readonly signal: AbortSignal;
  readonly report: (report: Report | Progress) => void;
  /**
   * Gives further connections to the task, up to the number asked for. If it is absent, the task has only its own
   * connection.
   */
  readonly more?: (wanted: number) => number;
}

/** Handles messages of a task that need no answer. */
export type Progress = Exclude<LinkReport, { readonly type: 'refused' | 'connections' }>;

export interface TransferLink {
  /** This port is moved to the task. */
  readonly port: MessagePort;
  /** Tells the task what it waits for. It may have ended. */
  tell(value: unknown): void;
  close(): void;
}

export function openLink<Report extends { readonly type: string }>(options: TransferLinkOptions<Report>): TransferLink {
  const { access, scope, sourceOf, signal } = options;
  const { port1: near, port2: port } = new MessageChannel();
  let { grant } = options;
  const order = (message: LinkOrder): void => near.postMessage(message, []);
  const renew = async (refused: Outcome): Promise<void> => {
    try {
      grant = await access.grant(scope, signal, { grant, error: errorOf(refused) });
      order({ type: 'source', source: { ok: true, value: sourceOf(grant) } });
    } catch (error) {
      order({ type: 'source', source: failure(error) });
    }
  };
  const take = (report: Report | LinkReport): void => {
    if (isRefused(report)) void renew(report.error);
    else if (isConnections(report)) order({ type: 'connections', granted: options.more?.(report.wanted) ?? 0 });
    else options.report(report);
  };
  near.on('message', take);
  // The pool's own signal is not used: it would end the thread, in which other transfers may be under way.
  const onAbort = (): void => order({ type: 'cancel' });
  signal.addEventListener('abort', onAbort, { once: true });
  return {
    port,
    tell: (value) => order({ type: 'tell', value }),
    close: () => {
      signal.removeEventListener('abort', onAbort);
      // The task's result comes another way, and may overtake what was reported before it.
      for (let late = receiveMessageOnPort(near); late; late = receiveMessageOnPort(near))
        take(late.message as Report | LinkReport);
      near.close();
    },
  };
}

function isRefused(report: { readonly type: string }): report is Extract<LinkReport, { readonly type: 'refused' }> {
  return report.type === 'refused';
}

function isConnections(report: {
  readonly type: string;
}): report is Extract<LinkReport, { readonly type: 'connections' }> {
  return report.type === 'connections';
}

function errorOf(outcome: Outcome): unknown {
  try {
    return unwrap(outcome);
  } catch (error) {
    return isEngineError(error) ? error : undefined;
  }
}
