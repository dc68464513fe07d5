/** Keeps the replies of requests with keys for ten minutes, in memory and in a journal. */
import { randomBytes } from 'node:crypto';
import { invalid, unavailable } from '../errors/engine-error.js';
import type { Attempt, KeptReplies, KeptReply, KeyedRequest, RetryKind } from '../ports/kept-replies.js';
import type { Logger } from '../ports/logger.js';
import { ReplyJournal, type JournalEntry } from './reply-journal.js';

const KEEP_MS = 10 * 60_000;
/** The limits of what is kept, which is in memory: clients choose the keys. */
const MAX_ENTRIES = 100_000;
const MAX_REPLY_CHARACTERS = 32 * 1024 * 1024;

/** One key. */
interface Entry {
  readonly key: string;
  readonly fingerprint: string;
  readonly id: string;
  readonly begunMs: number;
  /** It counts until ten minutes after this time; that of the reply, once there is one. */
  touchedMs: number;
  reply: KeptReply | undefined;
  /** Attempts of this daemon that have not ended. */
  running: number;
  /** An earlier daemon had begun it. */
  readonly isInterrupted: boolean;
  /** Called when an attempt has ended, whatever came of it. */
  waiters: (() => void)[];
}

export class JournaledReplies implements KeptReplies {
  readonly #entries = new Map<string, Entry>();
  /** Those that nobody is doing, in the order of `touchedMs`. */
  readonly #resting = new Set<Entry>();
  #replyCharacters = 0;
  readonly #sweeper: NodeJS.Timeout;

  private constructor(
    private readonly journal: ReplyJournal,
    private readonly log: Logger,
    private readonly keepMs: number,
  ) {
    this.#sweeper = setInterval(() => this.#forgetOld(Date.now()), keepMs / 4).unref();
  }

  /** Reads what earlier daemons have kept. @param keepMs how long replies are kept; ten minutes. */
  static async open(dir: string, log: Logger, keepMs = KEEP_MS): Promise<JournaledReplies> {
    const journal = new ReplyJournal(dir, keepMs);
    const replies = new JournaledReplies(journal, log, keepMs);
    try {
      const { entries, damaged } = await journal.load();
      if (damaged > 0) log.warn({ dir, lines: damaged }, 'kept replies are damaged and forgotten');
      for (const entry of entries) replies.#restore(entry);
      replies.#forgetOld(Date.now());
    } catch (err) {
      log.warn({ err, dir }, 'kept replies of the last run cannot be read');
    }
    return replies;
  }

  async admit(request: KeyedRequest): Promise<KeptReply | Attempt> {
    for (;;) {
      this.#forgetOld(Date.now());
      const entry = this.#entries.get(request.key);
      if (entry === undefined) return this.#begin(request);
      if (entry.fingerprint !== request.fingerprint)
        throw invalid('Idempotency-Key was used for another request', { code: 'KEY_REUSED' });
      if (entry.reply !== undefined) return entry.reply;
      if (entry.running === 0 || request.kind === 'shared') return this.#attempt(entry, request.kind);
      await new Promise<void>((resolve) => entry.waiters.push(resolve));
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    await this.journal.close();
  }

  async #begin({ key, fingerprint, kind }: KeyedRequest): Promise<Attempt> {
    if (this.#entries.size >= MAX_ENTRIES || this.#replyCharacters >= MAX_REPLY_CHARACTERS)
      throw unavailable('too many requests with an Idempotency-Key in ten minutes', { code: 'OVERLOADED' });
    const nowMs = Date.now();
    const entry: Entry = {
      key,
      fingerprint,
      id: randomBytes(32).toString('hex'),
      begunMs: nowMs,
      touchedMs: nowMs,
      reply: undefined,
      running: 0,
      isInterrupted: false,
      waiters: [],
    };
    this.#entries.set(key, entry);
    const attempt = this.#attempt(entry, kind);
    // A pull is tried again in any case, so nobody needs to know that it was begun.
    if (kind === 'once') await this.#write(entry, undefined);
    return attempt;
  }

  #attempt(entry: Entry, kind: RetryKind): Attempt {
    entry.running++;
    this.#resting.delete(entry);
    let hasEnded = false;
    const end = (): void => {
      hasEnded = true;
      entry.running--;
      const { waiters } = entry;
      entry.waiters = [];
      for (const wake of waiters) wake();
    };
    const drop = (): void => {
      if (hasEnded) return;
      end();
      if (entry.running > 0 || entry.reply !== undefined || this.#entries.get(entry.key) !== entry) return;
      this.#entries.delete(entry.key);
      // The next daemon must not think that it was interrupted; it only costs a look if this line is lost.
      void this.#write(entry, null);
    };
    return {
      id: entry.id,
      begunMs: entry.begunMs,
      isInterrupted: entry.isInterrupted,
      keep: async (reply) => {
        if (hasEnded) return;
        // A pull may be done again, so its reply, which may be long, is not kept where there is no room.
        const hasRoom = this.#replyCharacters + reply.body.length <= MAX_REPLY_CHARACTERS;
        if (kind === 'shared' && (!hasRoom || entry.reply !== undefined)) return drop();
        await this.#write(entry, reply);
        this.#keep(entry, reply);
        end();
      },
      drop,
    };
  }

  #keep(entry: Entry, reply: KeptReply): void {
    if (entry.reply !== undefined) return;
    entry.reply = reply;
    entry.touchedMs = Date.now();
    this.#replyCharacters += reply.body.length;
    this.#resting.add(entry);
  }

  /** Without room on the disk the reply is kept in memory only, because the request itself was done. */
  async #write({ key, fingerprint, id, begunMs }: Entry, reply: KeptReply | null | undefined): Promise<void> {
    const line = { key, fingerprint, id, begunMs, atMs: Date.now(), ...(reply === undefined ? {} : { reply }) };
    try {
      await this.journal.append(line);
    } catch (err) {
      this.log.warn({ err }, 'a reply is not kept for the next run');
    }
  }

  #restore({ key, fingerprint, id, begunMs, atMs, reply }: JournalEntry): void {
    const before = this.#entries.get(key);
    if (before !== undefined) this.#forget(before);
    if (reply === null) return;
    // The clock may have been set back since.
    const touchedMs = Math.min(atMs, Date.now());
    const isInterrupted = reply === undefined;
    const entry = { key, fingerprint, id, begunMs, touchedMs, reply, running: 0, isInterrupted, waiters: [] };
    this.#replyCharacters += reply?.body.length ?? 0;
    this.#entries.set(key, entry);
    this.#resting.add(entry);
  }

  #forgetOld(nowMs: number): void {
    for (const entry of this.#resting) {
      if (nowMs - entry.touchedMs < this.keepMs) return;
      this.#forget(entry);
    }
  }

  #forget(entry: Entry): void {
    this.#entries.delete(entry.key);
    this.#resting.delete(entry);
    this.#replyCharacters -= entry.reply?.body.length ?? 0;
  }
}
