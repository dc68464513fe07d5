/**
 * Keeps the kernel from putting free memory together. `warmMemory` frees 2 GiB in pieces between others, and the kernel
 * may take that for memory that has to be mended: within half a second kcompactd begins to compute, for 0.4 s, while
 * a sample is under way. What was freed lies together then, so that a virtual machine gives it back to its host.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

/** How eager the kernel is to do so when nobody has asked for large pieces; it is there since Linux 5.9. */
const EAGERNESS = '/proc/sys/vm/compaction_proactiveness';

/** Returns what makes the kernel as it was. @param path of the setting. */
export function withoutCompaction(path = EAGERNESS): () => void {
  if (!existsSync(path)) return () => undefined;
  const before = readFileSync(path, 'latin1');
  writeFileSync(path, '0\n');
  return () => writeFileSync(path, before);
}
