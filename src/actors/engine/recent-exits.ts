/** Exits of containers that were removed shortly before the daemon ended: clients may still ask for them by full ID. */
import type { EventLog } from '../../ports/events.js';
import { EXIT_RETENTION_MS, type ContainerDirectory } from '../container/directory.js';

const NS_PER_MS = 1_000_000n;

/** Reads these exits from the log of events. Waits for IDs that nobody knows are held up until that is done. */
export function rememberRecentExits(events: EventLog, containers: ContainerDirectory): Promise<void> {
  const load = async (): Promise<void> => {
    const nowMs = Date.now();
    const deaths = events.subscribe({
      sinceNs: BigInt(nowMs - EXIT_RETENTION_MS) * NS_PER_MS,
      untilNs: BigInt(nowMs) * NS_PER_MS,
      filter: ({ Type, Action }) => Type === 'container' && Action === 'die',
    });
    for await (const items of deaths) {
      for (const item of items) {
        if (item.kind === 'gap') continue;
        const { ID, Attributes } = item.event.Actor;
        const ageMs = nowMs - Number(item.timeNs / NS_PER_MS);
        containers.rememberExit(ID, { exitCode: Number(Attributes['exitCode']) }, EXIT_RETENTION_MS - ageMs);
      }
    }
  };
  return containers.learnExits(load());
}
