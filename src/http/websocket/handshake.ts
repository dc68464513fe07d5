/** The opening of a WebSocket (RFC 6455, section 4.2). */
import { createHash } from 'node:crypto';
import { invalid } from '../../errors/engine-error.js';
import type { Exchange } from '../exchange.js';
import { WebSocketStream } from './websocket-stream.js';

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/**
 * Checks that a request asks for a WebSocket, without answering it.
 * @throws EngineError invalid.
 */
export function requireWebSocket(x: Exchange): void {
  if (!hasToken(x.header('upgrade'), 'websocket') || !hasToken(x.header('connection'), 'upgrade'))
    throw invalid('the request must be an upgrade to a websocket', { code: 'WEBSOCKET' });
  if (x.header('sec-websocket-version') !== '13')
    throw invalid('the websocket must be of version 13', { code: 'WEBSOCKET' });
  if (!/^[A-Za-z0-9+/]{22}==$/.test(x.header('sec-websocket-key') ?? ''))
    throw invalid('Sec-WebSocket-Key must be 16 bytes in base64', { code: 'WEBSOCKET' });
}

/** Answers the request and returns the stream. @throws as `Exchange.upgrade`. */
export async function openWebSocket(x: Exchange, kind: 'text' | 'binary'): Promise<WebSocketStream> {
  const key = x.header('sec-websocket-key') ?? '';
  const accept = createHash('sha1')
    .update(key + GUID)
    .digest('base64');
  return new WebSocketStream(await x.upgrade('websocket', { 'Sec-WebSocket-Accept': accept }), kind);
}

function hasToken(header: string | undefined, token: string): boolean {
  return (header ?? '').split(',').some((part) => part.trim().toLowerCase() === token);
}
