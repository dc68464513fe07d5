/** The build history as clients list and follow it. */
import type { MessageInitShape } from '@bufbuild/protobuf';
import { readStatus } from './grpc-status.js';
import type { AttachmentDescriptor, BuildHistory, BuildRecord, HistoryChange } from './history.js';
import {
  BuildHistoryEventType,
  type BuildHistoryEventSchema,
  type BuildHistoryRecordSchema,
  type BuildHistoryRequest,
} from './proto/gen/control_pb.js';
import type { DescriptorSchema } from './proto/gen/common_pb.js';
import { timestamp } from './timestamp.js';

type Event = MessageInitShape<typeof BuildHistoryEventSchema>;

const TYPES = {
  started: BuildHistoryEventType.STARTED,
  complete: BuildHistoryEventType.COMPLETE,
  deleted: BuildHistoryEventType.DELETED,
} as const;
/** A reader that is further behind loses the oldest changes. */
const MAX_BEHIND = 1_000;

/** Yields what there is, then the changes, unless the client wants to know only what there is. */
export async function* historyEvents(
  history: BuildHistory,
  { activeOnly, ref, earlyExit, limit }: BuildHistoryRequest,
  signal: AbortSignal,
): AsyncGenerator<Event> {
  const changes: Event[] = [];
  let wake = (): void => undefined;
  const unsubscribe = history.subscribe((change, record) => {
    if (ref !== '' && record.ref !== ref) return;
    changes.push(eventOf(change, record));
    if (changes.length > MAX_BEHIND) changes.shift();
    wake();
  });
  const aborted = (): void => wake();
  signal.addEventListener('abort', aborted);
  try {
    const { active, ended } = await history.list(activeOnly);
    changes.length = 0;
    const wanted = (record: BuildRecord): boolean => ref === '' || record.ref === ref;
    for (const record of active.filter(wanted)) yield eventOf('started', record);
    const shown = ended.filter(wanted);
    for (const record of limit > 0 ? shown.slice(0, limit) : shown) yield eventOf('complete', record);
    if (earlyExit) return;
    for (;;) {
      yield* changes.splice(0);
      if (signal.aborted) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
        if (signal.aborted || changes.length > 0) resolve();
      });
    }
  } finally {
    signal.removeEventListener('abort', aborted);
    unsubscribe();
  }
}

function eventOf(change: HistoryChange, record: BuildRecord): Event {
  const { counts } = record;
  return {
    type: TYPES[change],
    record: {
      ref: record.ref,
      frontend: record.frontend,
      frontendAttrs: { ...record.frontendAttrs },
      exporters: record.exporters.map(({ type, attrs }) => ({ type, attrs: { ...attrs } })),
      ...(record.error !== undefined && { error: readStatus(Buffer.from(record.error, 'base64')) }),
      createdAt: timestamp(record.createdMs),
      ...(record.completedMs !== undefined && { completedAt: timestamp(record.completedMs) }),
      exporterResponse: { ...record.exporterResponse },
      ...attached(record.attachments),
      pinned: record.pinned,
      numCachedSteps: counts.cached,
      numTotalSteps: counts.total,
      numCompletedSteps: counts.completed,
      numWarnings: counts.warnings,
    },
  };
}

type Described = MessageInitShape<typeof DescriptorSchema>;

function describedAs(attachments: readonly AttachmentDescriptor[], kind: AttachmentDescriptor['kind']): Described[] {
  return attachments
    .filter((one) => one.kind === kind)
    .map(({ mediaType, digest, sizeBytes, predicateType }) => ({
      mediaType,
      digest,
      size: BigInt(sizeBytes),
      annotations: predicateType === undefined ? {} : { 'in-toto.io/predicate-type': predicateType },
    }));
}

function attached(
  attachments: readonly AttachmentDescriptor[] = [],
): Pick<MessageInitShape<typeof BuildHistoryRecordSchema>, 'result' | 'externalError'> {
  const results = describedAs(attachments, 'result').map((one, at) => [String(at), one] as const);
  const attestations = describedAs(attachments, 'attestation');
  const [externalError] = describedAs(attachments, 'error');
  return {
    ...(results.length + attestations.length > 0 && { result: { results: Object.fromEntries(results), attestations } }),
    ...(externalError !== undefined && { externalError }),
  };
}
