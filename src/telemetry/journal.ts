/** Tells whether output goes to systemd's journal. */
import { fstatSync } from 'node:fs';

/**
 * Returns true if the descriptor is the stream that systemd has opened to its journal for this process. The variable
 * alone says nothing: a program that redirects its output hands it on (systemd.exec(5)).
 */
export function leadsToJournal(environment: NodeJS.ProcessEnv, descriptor: number): boolean {
  const named = environment['JOURNAL_STREAM'];
  if (named === undefined) return false;
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return named === `${dev}:${ino}`;
}
