/**
 * The stream of task events of one namespace. containerd replays nothing and does not say when a subscription is in
 * force, so after opening the stream we publish a marker of our own until it comes back: what happens after that is
 * seen, what happened before is found by asking for the state.
 */
import { randomUUID } from 'node:crypto';
import { fromBinary } from '@bufbuild/protobuf';
import { setTimeout as delay } from 'node:timers/promises';
import type { TaskEvent } from '../ports/supervisor.js';
import { deferred } from './deferred.js';
import { exitStatus } from './exits/exit-status.js';
import type { GrpcConnection } from './grpc-connection.js';
import { fromGrpc } from './grpc-error.js';
import { Events, type Envelope } from './proto/gen/event_service_pb.js';
import { TaskExitSchema, TaskOOMSchema, TaskPausedSchema, TaskResumedSchema } from './proto/gen/task_events_pb.js';

const MARKER_TOPIC = '/engine/subscribed';
/** The first marker is mostly lost, as a subscription takes a millisecond or two. Each wait is twice the last one. */
const FIRST_RETRY_MS = 1;
const MAX_RETRY_MS = 20;
const PUBLISH_TIMEOUT_MS = 10_000;

export interface EventStreamListeners {
  readonly onEvent: (event: TaskEvent) => void;
  /** The stream ended; called once, and not after `close`. */
  readonly onEnd: (reason: Error) => void;
}

export interface EventStream {
  /** Resolves when every later event will be seen. Rejects when the stream ends before that. */
  readonly subscribed: Promise<void>;
  close(): void;
}

/**
 * Opens the stream, as soon as there is a connection. Events arrive in containerd's order, also before `subscribed`.
 */
export function openEventStream(
  connection: GrpcConnection,
  namespace: string,
  { onEvent, onEnd }: EventStreamListeners,
): EventStream {
  const marker = randomUUID();
  const call = connection.serverStream(Events.method.subscribe, {
    filters: [
      `namespace=="${namespace}",topic~="^/tasks/(exit|oom|paused|resumed)$"`,
      `namespace=="${namespace}",topic=="${MARKER_TOPIC}"`,
    ],
  });
  let isOpen = true;
  const marked = deferred();

  const end = (reason: Error): void => {
    if (!isOpen) return;
    isOpen = false;
    marked.reject(reason);
    onEnd(reason);
  };
  call.on('data', (envelope: Envelope) => {
    if (envelope.topic === MARKER_TOPIC) {
      if (Buffer.from(envelope.event?.value ?? []).toString() === marker) marked.resolve();
      return;
    }
    const event = decode(envelope);
    if (event) onEvent(event);
  });
  call.on('error', (error) => end(fromGrpc(error, 'Subscribe')));
  call.on('end', () => end(new Error('the supervisor ended the stream of events')));

  return {
    subscribed: confirm(connection, marker, marked.promise),
    close() {
      isOpen = false;
      marked.reject(new Error('closed'));
      call.cancel();
    },
  };
}

async function confirm(connection: GrpcConnection, marker: string, marked: Promise<void>): Promise<void> {
  const events = connection.unary(Events);
  const event = { typeUrl: 'engine.Subscribed', value: Buffer.from(marker) };
  const isMarked = marked.then(() => true);
  isMarked.catch(() => {}); // It may reject while we publish; the race below reports it.
  for (let waitMs = FIRST_RETRY_MS; ; waitMs = Math.min(2 * waitMs, MAX_RETRY_MS)) {
    await events.publish({ topic: MARKER_TOPIC, event }, { timeoutMs: PUBLISH_TIMEOUT_MS });
    if (await Promise.race([isMarked, delay(waitMs, false)])) return;
  }
}

function decode({ event }: Envelope): TaskEvent | undefined {
  switch (event?.typeUrl) {
    case TaskExitSchema.typeName: {
      const exit = fromBinary(TaskExitSchema, event.value);
      return {
        type: 'exit',
        id: exit.containerId,
        execId: exit.id === exit.containerId ? '' : exit.id,
        pid: exit.pid,
        exit: exitStatus(exit.exitStatus, exit.exitedAt),
      };
    }
    case TaskOOMSchema.typeName:
      return { type: 'oom', id: fromBinary(TaskOOMSchema, event.value).containerId };
    case TaskPausedSchema.typeName:
      return { type: 'paused', id: fromBinary(TaskPausedSchema, event.value).containerId };
    case TaskResumedSchema.typeName:
      return { type: 'resumed', id: fromBinary(TaskResumedSchema, event.value).containerId };
    default:
      return undefined;
  }
}
