/** Where the body of a request ends, as its head tells. */
import type { RequestHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';

/** For requests that fail `isKnownFraming`. */
export const UNKNOWN_FRAMING: ReplyHead = { status: 400, name: 'Content-Type', value: 'application/json' };
export const UNKNOWN_FRAMING_MESSAGE = 'ambiguous or unsupported framing of the request body';

/** What of a head says it. */
export type FramingHead = Pick<RequestHead, 'getHeader' | 'forEach'>;

/**
 * False when a head says more than one thing about where its body ends, or something that the library does not know: it
 * would choose, and whoever stands before this daemon may have read other requests out of the same bytes.
 */
export function isKnownFraming(head: FramingHead): boolean {
  const encoding = head.getHeader('transfer-encoding');
  if (encoding === '' && head.getHeader('content-length') === '') return true;
  let count = 0;
  head.forEach((name) => void (count += name === 'transfer-encoding' || name === 'content-length' ? 1 : 0));
  return count === 1 && (encoding === '' || encoding.toLowerCase() === 'chunked');
}

export function hasBody(head: FramingHead): boolean {
  const length = head.getHeader('content-length');
  return (length !== '' && length !== '0') || head.getHeader('transfer-encoding') !== '';
}

/** As `isKnownFraming`, for the text of a head. */
export function statesOneFraming(head: string): boolean {
  let count = 0;
  for (const [, name = '', value = ''] of head.matchAll(/\r\n(content-length|transfer-encoding):([^\r]*)/gi)) {
    if (++count > 1 || (name.length > 'content-length'.length && value.trim().toLowerCase() !== 'chunked'))
      return false;
  }
  return true;
}
