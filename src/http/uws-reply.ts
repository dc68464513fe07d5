/** Writes replies by the calls of uWebSockets.js. */
import { isBodiless, statusLine, type ReplyHead } from './response-head.js';
import type { HttpResponse } from './uws.js';

/** Sends status and headers, which come before the body. */
export function writeHead(res: HttpResponse, head: ReplyHead): void {
  if (head.status !== 200) res.writeStatus(statusLine(head.status));
  const { name, value } = head.encoded ?? head;
  res.writeHeader(name, value);
}

/** About how many bytes the head of a reply has, with what the library adds; not less. */
export function headBytes(head: ReplyHead): number {
  return 256 + head.name.length + head.value.length;
}

/**
 * Sends a whole reply, after which `res` is no longer valid.
 * @param isHead true when the client wants to know the length of the body only.
 * @param closing true when the connection ends with the reply.
 */
export function writeWhole(
  res: HttpResponse,
  head: ReplyHead,
  body: string | Uint8Array | undefined,
  isHead: boolean,
  closing: boolean,
): void {
  writeHead(res, head);
  // An explicit undefined would be rendered as a length.
  if (isBodiless(head.status)) res.endWithoutBody();
  else if (body === undefined) res.endWithoutBody(0, closing);
  else if (isHead) res.endWithoutBody(Buffer.byteLength(body), closing);
  else res.end(body, closing);
}
