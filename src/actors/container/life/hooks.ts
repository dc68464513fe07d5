/** The container machine's quick calls: views, events, signals. */
import type { ContainerHooks } from '../container.effects.types.js';
import type { ContainerIoRegistry } from '../streams/container-io.js';
import type { ContainerRecord } from '../container.record.js';
import { thaw, whileRunning } from './ended-task.js';
import type { ContainerDeps } from '../deps.js';
import { eventLabels } from '../../../text/event-labels.js';
import { parseSignal, SIGKILL, signalNumber } from '../../../text/signals.js';

/** Returns the attributes that every container event carries: labels, image and name. */
export function eventAttributes(record: ContainerRecord): Record<string, string> {
  return { ...eventLabels(record.config.Labels), image: record.config.Image, name: record.name.slice(1) };
}

export function createContainerHooks(
  deps: ContainerDeps,
  ios: ContainerIoRegistry,
  publish: ContainerHooks['publish'],
): ContainerHooks {
  const emit: ContainerHooks['emit'] = (action, record, attributes) =>
    deps.emit('container', action, record.id, { ...eventAttributes(record), ...attributes });
  return {
    publish,
    emit,
    async kill(record, signal, wasTold) {
      // The event of the signal comes before the signal, so that it also comes before the event of the end.
      if (!wasTold) emit('kill', record, { signal: String(signal) });
      await whileRunning(deps.tasks, record.id, deps.tasks.kill(record.id, signal));
      const stopSignal = signalNumber(record.config.StopSignal ?? '') ?? parseSignal('TERM');
      // A frozen process cannot act on a signal that is meant to end it.
      if (record.state.status === 'paused' && (signal === SIGKILL || signal === stopSignal)) {
        await thaw(deps.tasks, record.id);
      }
    },
    exited: (id) => ios.get(id).part(),
    released: (id) => ios.get(id).endParted(),
    forget(id) {
      deps
        .eventsWritten()
        .then(() => deps.records.forget(id))
        .catch((error: unknown) => deps.log.error({ err: error, container: id }, 'what is left of its record stays'));
    },
    saveLater(record) {
      deps.records
        .save(record)
        .catch((error: unknown) => deps.log.error({ err: error, container: record.id }, 'record not saved'));
    },
  };
}
