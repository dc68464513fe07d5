/** The one place that loads uWebSockets.js, and declares what its binary offers beyond its index.d.ts. */
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';
import { statusLine, type ReplyHead } from './response-head.js';

export type { HttpRequest, HttpResponse };

export interface UwsApp extends TemplatedApp {
  /** Takes over a connected socket; the descriptor is then the app's to close. */
  adoptSocket(fd: number): void;
  /** Seconds without a request, or that a body may trickle; 0: no limit. Counts from the next event on a socket. */
  setIdleTimeout(seconds: number): UwsApp;
  /** Seconds that a reply may wait for a client that does not read; 0: no limit. */
  setResponseTimeout(seconds: number): UwsApp;
}

/** Bytes of a request's head, line and headers together: registry tokens in X-Registry-Config are large. */
const MAX_HEAD_BYTES = 65_536;

// The binary reads the variable once, when it is loaded; child processes need not see it.
process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(MAX_HEAD_BYTES);
const { App } = await import('uWebSockets.js');
delete process.env['UWS_HTTP_MAX_HEADERS_SIZE'];

/** A plain HTTP app without listeners. Costs about 29 KB that are not given back: reuse it. */
export function createUwsApp(): UwsApp {
  return App() as UwsApp;
}

/** Sends status and headers, which come before the body. */
export function writeHead(res: HttpResponse, head: ReplyHead): void {
  if (head.status !== 200) res.writeStatus(statusLine(head.status));
  res.writeHeader(head.name, head.value);
}

/** About how many bytes the head of a reply has, with what the library adds; not less. */
export function headBytes(head: ReplyHead): number {
  return 256 + head.name.length + head.value.length;
}
