/**
 * Checks values that become part of a line in a file of the container, such as its hosts file, or of a path on the
 * host.
 */
import { invalid } from '../errors/engine-error.js';
import type { CgroupDriver } from './cgroup-path.js';

/** Matches control characters: a line break would add a line, and so another host or name server. */
// oxlint-disable-next-line no-control-regex -- these characters are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Checks values. @throws EngineError invalid naming the field, for a value with a control character. */
export function checkOneLine(field: string, values: readonly string[] | null | undefined): void {
  for (const value of values ?? []) {
    if (CONTROL.test(value))
      throw invalid(`invalid ${field}: ${JSON.stringify(value)} has a control character`, {
        code: 'CONTROL_CHARACTER',
      });
  }
}

/** Checks that the group is below the one that it is resolved in. @throws EngineError invalid. */
export function checkCgroupParent(parent: string, driver: CgroupDriver): void {
  checkOneLine('CgroupParent', [parent]);
  if (parent.split('/').includes('..'))
    throw invalid(`invalid CgroupParent: ${JSON.stringify(parent)} leads out of its group`);
  if (
    driver === 'systemd' &&
    parent !== '' &&
    (!parent.endsWith('.slice') || parent === '.slice' || /[:/]/.test(parent))
  ) {
    throw invalid('cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"');
  }
}
