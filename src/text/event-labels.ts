/**
 * Labels as events have them. An image may have 16 MiB of labels, and with a health check they would come three times a
 * second: each event would take a tenth of a second to write, and a few of them would drive all others out of the log.
 */

export type Labels = Readonly<Record<string, string>>;

/** All labels of an event together have so many characters; no container that means it well has nearly so many. */
const MAX_CHARACTERS = 256 << 10;
/** This attribute says how many labels are not in the event. */
const LEFT_OUT = 'engine.labels-left-out';

/** Labels that are too long, with those that events have in their place. */
const shortened = new WeakMap<Labels, Labels>();
/** Labels that are as they may be. */
const short = new WeakSet<Labels>();

/** Returns the labels, or the first ones that have room and how many are left out. */
export function eventLabels(labels: Labels | null | undefined): Labels {
  if (!labels || short.has(labels)) return labels ?? {};
  const known = shortened.get(labels);
  if (known) return known;
  const entries = Object.entries(labels);
  let left = MAX_CHARACTERS;
  const kept = entries.filter(([name, value]) => (left -= name.length + value.length) >= 0);
  if (kept.length === entries.length) {
    short.add(labels);
    return labels;
  }
  const made = { ...Object.fromEntries(kept), [LEFT_OUT]: String(entries.length - kept.length) };
  shortened.set(labels, made);
  return made;
}
