/** A streamed reply whose lines are kept for those who ask again. */
import type { Attempt } from '../ports/kept-replies.js';
import type { ResponseStream } from './response-stream.js';

/** A pull of many layers has more lines about its progress; only the last ones are kept. */
const MAX_KEPT_CHARACTERS = 64 * 1024;

export interface KeptStreamOptions {
  readonly attempt: Attempt;
  readonly contentType: string;
  /** True when the stream tells of a failure, which is no reply to keep. */
  readonly hasFailed: () => boolean;
}

/** Returns a stream that does what `stream` does, and keeps what was written when it is ended in the ordinary way. */
export function keptStream(
  stream: ResponseStream,
  { attempt, contentType, hasFailed }: KeptStreamOptions,
): ResponseStream {
  let body = '';
  let isEnded = false;
  // The stream is also closed by an end, which keeps the reply first.
  stream.onClose(() => void (isEnded || attempt.drop()));
  return {
    get closed() {
      return stream.closed;
    },
    write: (chunk) => {
      body = lastLines(body + (typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString()));
      return stream.write(chunk);
    },
    ready: () => stream.ready(),
    lend: () => Promise.resolve(undefined),
    end: () => {
      if (isEnded || stream.closed) return;
      isEnded = true;
      if (hasFailed()) attempt.drop();
      else void attempt.keep({ status: 200, contentType, body });
      stream.end();
    },
    abort: () => stream.abort(),
    onClose: (callback) => stream.onClose(callback),
  };
}

function lastLines(text: string): string {
  if (text.length <= 2 * MAX_KEPT_CHARACTERS) return text;
  const cut = text.slice(-MAX_KEPT_CHARACTERS);
  return cut.slice(cut.indexOf('\n') + 1);
}
