/** Pulling over the API of a daemon. */
import type { Engine } from './engine.js';
import { jsonLines, open } from './http.js';

export interface PullMessage {
  readonly status?: string;
  readonly id?: string;
  readonly error?: string;
  readonly errorDetail?: { readonly message: string };
  /** The body of the refusal, after an error before the first progress. */
  readonly message?: string;
}

export interface PullResult {
  readonly status: number;
  readonly messages: readonly PullMessage[];
  /** How it failed: the refusal, or the error in the stream. */
  readonly error: string | undefined;
}

/** Reads a pull to its end. */
export async function pull(engine: Engine, reference: string): Promise<PullResult> {
  const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${encodeURIComponent(reference)}`);
  const messages: PullMessage[] = [];
  for await (const message of jsonLines<PullMessage>(reply.message)) messages.push(message);
  const last = messages.at(-1);
  return { status: reply.status, messages, error: last?.error ?? last?.message };
}

/** Like `pull`, but throws unless the image came. */
export async function pullOk(engine: Engine, reference: string): Promise<void> {
  const { status, messages, error } = await pull(engine, reference);
  if (status !== 200 || !messages.at(-1)?.status?.startsWith('Status: '))
    throw new Error(`pull of ${reference} gave ${status}: ${error ?? JSON.stringify(messages.at(-1))}`);
}
