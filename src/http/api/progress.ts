/**
 * Lines of progress as the Engine API has them, with the bar that clients without a terminal of their own print. The
 * order of the members is part of the form.
 */
import type { ProgressFact, ProgressRecord } from '../../ports/progress.js';

/** The type of a stream with the typed form of a pull's progress. */
export const TYPED_PROGRESS = 'application/vnd.engine.progress+json';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
const BAR_WIDTH = 50;

/** Renders a size in decimal units with four significant digits: `1.234kB`. */
export function humanSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${Number(value.toPrecision(4))}${UNITS[unit] ?? ''}`;
}

/** Renders a bar, `[====>      ]  1.5kB/2kB`; only the amount when the total is unknown. */
export function progressBar(current: number, total: number): string {
  if (current <= 0 && total <= 0) return '';
  const amount = humanSize(current).padStart(8);
  if (total <= 0) return amount;
  const filled = Math.min(Math.floor(Math.floor((current / total) * 100) / 2), BAR_WIDTH);
  const bar = `[${'='.repeat(filled)}>${' '.repeat(BAR_WIDTH - filled)}] `;
  return current > total ? bar + amount : `${bar}${amount}/${humanSize(total)}`;
}

/** Returns the line of a fact; lines end with CR LF. */
export function encodeProgress(fact: ProgressFact): string {
  return `${JSON.stringify(messageOf(fact))}\r\n`;
}

/** Returns the line of a record of the typed form. */
export function encodeRecord(record: ProgressRecord): string {
  return `${JSON.stringify(record)}\r\n`;
}

function messageOf(fact: ProgressFact): object {
  switch (fact.kind) {
    case 'line':
      return { status: fact.text, id: fact.id };
    case 'state':
      return { status: fact.status, progressDetail: {}, id: fact.id };
    case 'bytes': {
      const { status, id, current, total } = fact;
      return { status, progressDetail: { current, total }, progress: progressBar(current, total), id };
    }
    case 'pushed':
      return { progressDetail: {}, aux: { Tag: fact.tag, Digest: fact.digest, Size: fact.sizeBytes } };
    case 'pushed-alone': {
      const { index: originalIndex, manifest: selectedManifest } = fact;
      return { progressDetail: {}, aux: { manifestPushedInsteadOfIndex: true, originalIndex, selectedManifest } };
    }
    default:
      return { errorDetail: { message: fact.message }, error: fact.message };
  }
}
