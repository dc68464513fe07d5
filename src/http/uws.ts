/** Loads uWebSockets.js, which no other file does, and declares what its binary offers beyond its index.d.ts. */
import { createRequire } from 'node:module';
import type * as Uws from 'uWebSockets.js';
import type { HttpRequest, HttpResponse, TemplatedApp } from 'uWebSockets.js';

export type { HttpRequest, HttpResponse };

export interface UwsApp extends TemplatedApp {
  /** Takes over a connected socket; the descriptor is then the app's to close. */
  adoptSocket(fd: number): void;
  /**
   * Sets the seconds without a request, or that a body may trickle; 0: no limit. They count from the next event on a
   * socket.
   */
  setIdleTimeout(seconds: number): UwsApp;
  /** Sets the seconds that a reply may wait for a client that does not read; 0: no limit. */
  setResponseTimeout(seconds: number): UwsApp;
}

/**
 * Bytes of a request's head, line and headers together. It is large because registry tokens in X-Registry-Config are.
 */
const MAX_HEAD_BYTES = 65_536;

// The binary reads the variable once, when it is loaded; child processes need not see it.
process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(MAX_HEAD_BYTES);
const { App } = createRequire(import.meta.url)('uWebSockets.js') as typeof Uws;
delete process.env['UWS_HTTP_MAX_HEADERS_SIZE'];

/** Makes a plain HTTP app without listeners. It costs about 29 KB that are not given back: reuse it. */
export function createUwsApp(): UwsApp {
  return App() as UwsApp;
}
