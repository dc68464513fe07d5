/** The effects of containers, each of which is noted while it is under way. */
import type { ContainerEffects } from '../actors/container/container.effects.types.js';
import type { ContainerRecord } from '../actors/container/container.record.js';
import type { InFlight } from '../actors/kit/in-flight.js';

export interface EffectObserver {
  readonly started: (seconds: number) => void;
  readonly released: (record: ContainerRecord) => void;
}

export function notedEffects(
  effects: ContainerEffects,
  inFlight: InFlight,
  { started, released }: EffectObserver,
): ContainerEffects {
  const timed = async <T>(work: Promise<T>): Promise<T> => {
    const begunMs = performance.now();
    const result = await work;
    started((performance.now() - begunMs) / 1000);
    return result;
  };
  const note = <T>({ id }: ContainerRecord, work: Promise<T>): Promise<T> => inFlight.note(id, work);
  return {
    create: (record) => note(record, effects.create(record)),
    start: (record) => note(record, timed(effects.start(record))),
    adopt: (input) => note(input.record, effects.adopt(input)),
    stop: (input, signal) => note(input.record, effects.stop(input, signal)),
    pause: (record) => note(record, effects.pause(record)),
    unpause: (record) => note(record, effects.unpause(record)),
    drain: (record) => note(record, effects.drain(record)),
    release: (record) => note(record, effects.release(record)).finally(() => released(record)),
    remove: (input) => note(input.record, effects.remove(input)),
    rewire: (input) => note(input.record, effects.rewire(input)),
    save: (record) => effects.save(record),
  };
}
