/** Tells where the body of a request ends, from its head. */
import type { RequestHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';

/** The reply to requests that have no head as HTTP knows it, or for which `isKnownFraming` returns false. */
export const UNKNOWN_FRAMING: ReplyHead = { status: 400, name: 'Content-Type', value: 'application/json' };
export const UNKNOWN_FRAMING_MESSAGE = 'ambiguous or unsupported framing of the request body';
export const MALFORMED_HEAD_MESSAGE = 'malformed request head';

/** These parts of a head tell where the body ends. */
export type FramingHead = Pick<RequestHead, 'getHeader' | 'forEach'>;

/**
 * Returns false when a head says more than one thing about where its body ends, or something that the library does not
 * know. The library would choose one reading, and a proxy in front of this daemon may have chosen another and seen
 * other requests in the same bytes.
 */
export function isKnownFraming(head: FramingHead, encoding = head.getHeader('transfer-encoding')): boolean {
  if (encoding === '' && head.getHeader('content-length') === '') return true;
  let count = 0;
  head.forEach((name) => void (count += name === 'transfer-encoding' || name === 'content-length' ? 1 : 0));
  return count === 1 && (encoding === '' || encoding.toLowerCase() === 'chunked');
}

export function hasBody(head: FramingHead): boolean {
  const length = head.getHeader('content-length');
  return (length !== '' && length !== '0') || head.getHeader('transfer-encoding') !== '';
}

/**
 * Returns true when a client wants the connection to end with the reply: its options are a list (RFC 9110, 7.6.1),
 * which may come in several headers.
 */
export function asksToClose(head: FramingHead): boolean {
  // Nearly all requests end here. One whose first header of them is empty is answered as if there were no other.
  if (head.getHeader('connection') === '') return false;
  let asks = false;
  head.forEach((name, value) => {
    if (name === 'connection') asks ||= value.split(',').some((option) => option.trim().toLowerCase() === 'close');
  });
  return asks;
}

/**
 * The length of a body in bytes as the text of its head states it, 0 without a body; `open` when only the body itself
 * tells where it ends, or when the length is no number; `ambiguous` where `isKnownFraming` returns false.
 */
export type StatedBody = number | 'open' | 'ambiguous';

export function statedBody(head: string): StatedBody {
  let stated: StatedBody | undefined;
  for (const [, name = '', text = ''] of head.matchAll(/\r\n(content-length|transfer-encoding):([^\r]*)/gi)) {
    const value = text.trim();
    const isEncoding = name.length > 'content-length'.length;
    if (stated !== undefined || (isEncoding && value.toLowerCase() !== 'chunked')) return 'ambiguous';
    stated = !isEncoding && /^\d{1,15}$/.test(value) ? Number(value) : 'open';
  }
  return stated ?? 0;
}
