/** Replies with JSON whose length containers or images decide: it is made in parts, which hold no other request up. */
import { turn } from '../text/turns.js';
import type { Exchange } from './exchange.js';
import { pump } from './response-stream.js';

/** A reply up to this length is sent as a whole. */
const WHOLE_CHARS = 64 * 1024;
/** The same for lists that clients ask for often, of a thousand members or so. */
export const WHOLE_LIST_CHARS = 2 * 1024 * 1024;
const PIECE_CHARS = 16 * 1024;

/**
 * Sends the document whose pieces `pieces` makes, none of which takes longer than a millisecond or so. Resolves when it
 * is sent, or the client is gone. @param wholeChars a document up to this length is sent as a whole.
 */
export async function sendJsonParts(x: Exchange, pieces: Iterator<string>, wholeChars = WHOLE_CHARS): Promise<void> {
  let begun = '';
  for (;;) {
    await turn();
    const { done, value } = pieces.next();
    if (done) return x.sendRenderedJson(200, `${begun}\n`);
    begun += value;
    if (begun.length > wholeChars) break;
  }
  const stream = x.stream(200, { 'Content-Type': 'application/json' });
  await pump(rest(begun, pieces), stream);
}

async function* rest(begun: string, pieces: Iterator<string>): AsyncGenerator<string> {
  yield begun;
  for (let next = pieces.next(); !next.done; next = pieces.next()) {
    yield next.value;
    await turn();
  }
  yield '\n';
}

/** Returns the pieces of a list whose members are written by `write`. */
export function* listPieces<T>(members: Iterable<T>, write: (member: T) => string): Generator<string> {
  let piece = '[';
  let separator = '';
  for (const member of members) {
    piece += separator + write(member);
    separator = ',';
    if (piece.length < PIECE_CHARS) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}]`;
}
