/** Task: ends TLS for a listener of the daemon, in a thread that has nothing else to do, until it is told to end. */
import type { MessagePort } from 'node:worker_threads';
import type { SecureContextOptions } from 'node:tls';
import type { TlsRules } from '../ports/tls-terminator.js';
import { SharedFds } from '../sys/files/shared-fds.js';
import { TlsTermination, type TlsOutcome } from '../sys/net/tls-termination.js';

/** From the main thread to the task. */
export type TlsOrder =
  | { readonly type: 'accept'; readonly fd: number }
  | { readonly type: 'use'; readonly context: SecureContextOptions }
  /** Ends the task when clients have been sent what was written to them, or after this time. */
  | { readonly type: 'end'; readonly limitMs: number };

/** From the task to the main thread. */
export type TlsReport = TlsOutcome | { readonly type: 'closed' };

export interface TerminateTlsInput {
  readonly rules: TlsRules;
  /** Brings TlsOrders and gets TlsReports. */
  readonly port: MessagePort;
  /** The table of the descriptors that are on their way to or from the task, or are its own alone. */
  readonly held: SharedFds['table'];
}

export async function terminateTls({ rules, port, held }: TerminateTlsInput): Promise<void> {
  const report = (it: TlsReport): void => port.postMessage(it, []);
  const events = { onOutcome: report, onClosed: () => report({ type: 'closed' }) };
  const termination = new TlsTermination(rules, events, new SharedFds(held));
  const limitMs = await new Promise<number>((resolve) => {
    port.on('message', (order: TlsOrder) => {
      if (order.type === 'accept') termination.accept(order.fd);
      else if (order.type === 'use') termination.use(order.context);
      else resolve(order.limitMs);
    });
  });
  await termination.flush(limitMs);
  termination.close();
  port.close();
}
