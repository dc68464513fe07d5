/** The lines of a classic build, in the form that clients parse. */
import type { ClassicEvent } from '../../ports/build.js';
import { goJson } from '../../text/go-json.js';
import { progressBar } from './progress.js';

/** Output on the standard error stream is shown in red. */
const RED = '\u001b[91m';
const PLAIN = '\u001b[0m';

/** Returns the line of an event; lines end with CR LF. */
export function buildLine(event: ClassicEvent): string {
  switch (event.kind) {
    case 'text':
      return line({ stream: event.text });
    case 'output': {
      const text = event.bytes.toString('utf8');
      return line({ stream: event.stream === 2 ? `${RED}${text}${PLAIN}` : text });
    }
    case 'download': {
      const { status, id, current, total } = event;
      const progress = progressBar(current, total ?? 0);
      return line({ status, progressDetail: { current, total }, progress, id });
    }
    case 'progress':
      return event.text;
    default:
      return line({ aux: { ID: event.imageId } });
  }
}

/** Returns the last line of a build that has failed. The code is the exit code of a process. */
export function buildFailure(message: string, code: number | undefined): string {
  return line({ errorDetail: { ...(code === undefined ? {} : { code }), message }, error: message });
}

/** Returns the line of something that only some clients know. */
export function buildAux(id: string, aux: unknown): string {
  return line({ id, aux });
}

function line(value: object): string {
  return `${goJson(value, 0)}\r\n`;
}
