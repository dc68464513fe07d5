/** Decodes cgroup statistics of the shim: there is one message for cgroup v1 hosts, another for v2. */
import { fromBinary } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { internal } from '../errors/engine-error.js';
import { MetricsSchema as V1Schema, type Metrics as V1Metrics } from './proto/gen/cgroups_v1_pb.js';
import { MetricsSchema as V2Schema, type Metrics as V2Metrics } from './proto/gen/cgroups_v2_pb.js';

/** `$typeName` tells them apart; 64-bit numbers are bigint. */
export type CgroupMetrics = V1Metrics | V2Metrics;

/**
 * Decodes statistics. @throws EngineError internal for those of another kind (a runtime that is no Linux container).
 */
export function decodeMetrics({ typeUrl, value }: Any): CgroupMetrics {
  switch (typeUrl) {
    case V1Schema.typeName:
      return fromBinary(V1Schema, value);
    case V2Schema.typeName:
      return fromBinary(V2Schema, value);
    default:
      throw internal(`the runtime reports statistics of an unknown kind: ${typeUrl}`);
  }
}

/** Tells whether the kernel ever killed a process of the container because memory was short. */
export function hadOomKill(metrics: CgroupMetrics): boolean {
  const count =
    metrics.$typeName === V1Schema.typeName ? metrics.memoryOomControl?.oomKill : metrics.memoryEvents?.oomKill;
  return (count ?? 0n) > 0n;
}
