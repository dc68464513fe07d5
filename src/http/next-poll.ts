/**
 * Runs actions when the event loop looks at its descriptors next. `setImmediate` comes at another point, between
 * uWebSockets.js's own end of a turn and libuv's; a connection that the library closes at that point is never freed,
 * which costs 440 bytes each.
 */
import { MessageChannel } from 'node:worker_threads';

const waiting: (() => void)[] = [];
const { port1: wakes, port2: waker } = new MessageChannel();
wakes.on('message', () => waiting.shift()?.()).unref();

/** Runs `action` after everything that the current turn has begun; it must not throw. */
export function onNextPoll(action: () => void): void {
  waiting.push(action);
  waker.postMessage(undefined, []);
}
