/** The filters of `/events`, as pure functions of an event. */
import type { EngineEvent } from '../ports/events.js';
import { ownMember } from '../text/own-member.js';

/** Values of the `filters` parameter by key; [] for a key that was not given. */
export interface FilterValues {
  get(key: string): readonly string[];
}

/** These actions have details after a colon. A filter for the bare name matches all of them. */
const PREFIX_ACTIONS: ReadonlySet<string> = new Set(['health_status', 'exec_create', 'exec_start']);
const NAMED_KEYS = [
  'daemon',
  'container',
  'plugin',
  'volume',
  'network',
  'node',
  'service',
  'secret',
  'config',
] as const;

/** Returns a test of events. All keys must match; one of the values of a key must match, but all values of `label`. */
export function eventFilter(filters: FilterValues): (event: EngineEvent) => boolean {
  const named = NAMED_KEYS.map((key) => filters.get(key)).filter((values) => values.length > 0);
  const [types, scopes, actions, images, labels] = [
    filters.get('type'),
    filters.get('scope'),
    filters.get('event'),
    filters.get('image'),
    filters.get('label'),
  ];
  const matchesAction = actions.some((action) => PREFIX_ACTIONS.has(action)) ? startsWithAny : equalsAny;
  return (event) =>
    matchesAction(actions, event.Action) &&
    equalsAny(types, event.Type) &&
    equalsAny(scopes, event.scope) &&
    named.every(
      (values) => startsWithAny(values, event.Actor.ID) || startsWithAny(values, event.Actor.Attributes['name'] ?? ''),
    ) &&
    matchesImage(images, event) &&
    labels.every((label) => matchesLabel(label, event.Actor.Attributes));
}

function equalsAny(values: readonly string[], actual: string): boolean {
  return values.length === 0 || values.includes(actual);
}

function startsWithAny(values: readonly string[], actual: string): boolean {
  return values.length === 0 || values.some((value) => actual.startsWith(value));
}

/** Matches images by ID or name, and containers by their image, with or without the tag. */
function matchesImage(images: readonly string[], { Type, Actor }: EngineEvent): boolean {
  if (images.length === 0) return true;
  const name = Actor.Attributes[Type === 'image' ? 'name' : 'image'] ?? '';
  return [Actor.ID, name, withoutTag(Actor.ID), withoutTag(name)].some((candidate) => images.includes(candidate));
}

function matchesLabel(label: string, attributes: Readonly<Record<string, string>>): boolean {
  const equals = label.indexOf('=');
  if (equals < 0) return ownMember(attributes, label) !== undefined;
  return ownMember(attributes, label.slice(0, equals)) === label.slice(equals + 1);
}

/** Cuts `docker.io/library/busybox:1@sha256:…` down to `busybox`. */
function withoutTag(reference: string): string {
  const name = (reference.split('@')[0] ?? '').replace(/:[^:/]*$/, '');
  return name.replace(/^(?:index\.)?docker\.io\/(?:library\/)?/, '');
}
