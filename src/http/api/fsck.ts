/** The reply to POST /engine/fsck. */
import type { FsckReport } from '../../inventory/fsck.js';

export function fsckJson({ dataRoot, drivers, bytes, kinds, findings }: FsckReport): unknown {
  return {
    dataRoot,
    drivers,
    bytes,
    kinds: kinds.map((sum) => ({ kind: sum.kind, count: sum.count, bytes: sum.bytes })),
    findings: findings.map((finding) => ({
      path: finding.path,
      kind: finding.kind,
      bytes: finding.bytes,
      reason: finding.reason,
      isRepairable: finding.isRepairable,
      outcome: finding.outcome,
    })),
  };
}
