/** Cgroup statistics as the shim sends them: one message for cgroup v1 hosts, another for v2. */
import { fromBinary } from '@bufbuild/protobuf';
import type { Any } from '@bufbuild/protobuf/wkt';
import { internal } from '../errors/engine-error.js';
import { MetricsSchema as V1Schema, type Metrics as V1Metrics } from './proto/gen/cgroups_v1_pb.js';
import { MetricsSchema as V2Schema, type Metrics as V2Metrics } from './proto/gen/cgroups_v2_pb.js';

/** Told apart by `$typeName`; 64-bit numbers are bigint. */
export type CgroupMetrics = V1Metrics | V2Metrics;

/** @throws EngineError internal for statistics of another kind (a runtime that is no Linux container). */
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

/** Whether the kernel killed a process of the container for want of memory, at any time. */
export function hadOomKill(metrics: CgroupMetrics): boolean {
  const count =
    metrics.$typeName === V1Schema.typeName ? metrics.memoryOomControl?.oomKill : metrics.memoryEvents?.oomKill;
  return (count ?? 0n) > 0n;
}
