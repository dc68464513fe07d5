/** The effects of containers, each of which is noted while it is under way. */
import type { ContainerEffects } from '../actors/container/container.effects.types.js';
import type { ContainerRecord } from '../actors/container/container.record.js';
import type { InFlight } from '../actors/kit/in-flight.js';
import { unavailable } from '../errors/engine-error.js';

export interface EffectObserver {
  readonly started: (seconds: number) => void;
  /** Called before the end of the container is seen. */
  readonly releasing: (record: ContainerRecord) => void;
  readonly released: (record: ContainerRecord) => void;
}

export function notedEffects(
  effects: ContainerEffects,
  inFlight: InFlight,
  { started, releasing, released }: EffectObserver,
): ContainerEffects {
  const timed = async <T>(work: Promise<T>): Promise<T> => {
    const begunMs = performance.now();
    const result = await work;
    started((performance.now() - begunMs) / 1000);
    return result;
  };
  const note = <T>({ id }: ContainerRecord, work: Promise<T>): Promise<T> => inFlight.note(id, work);
  const starts = new Set<string>();
  /**
   * A start that was given up may go on later and take back what it did. It must not take back the work of a newer
   * start.
   */
  const alone = async (id: string, start: () => Promise<ContainerRecord>): Promise<ContainerRecord> => {
    if (starts.has(id)) throw unavailable(`an earlier start of container ${id} has not ended yet`);
    starts.add(id);
    try {
      return await start();
    } finally {
      starts.delete(id);
    }
  };
  return {
    create: (record, ...control) => note(record, effects.create(record, ...control)),
    start: (record, ...control) =>
      note(
        record,
        alone(record.id, () => timed(effects.start(record, ...control))),
      ),
    adopt: (input) => note(input.record, effects.adopt(input)),
    stop: (input, ...control) => note(input.record, effects.stop(input, ...control)),
    pause: (record, signal) => note(record, effects.pause(record, signal)),
    unpause: (record) => note(record, effects.unpause(record)),
    drain: (record) => note(record, effects.drain(record)),
    release: (input) => {
      const { record } = input;
      releasing(record);
      return note(record, effects.release(input)).finally(() => released(record));
    },
    remove: (input, pace) => note(input.record, effects.remove(input, pace)),
    rewire: (input) => note(input.record, effects.rewire(input)),
    save: (record) => effects.save(record),
  };
}
