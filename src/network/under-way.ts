/** How long a daemon waits for connections through its proxies that nobody will go on with. */
import type { RestLimits } from '../ports/network.js';
import { awake } from '../text/awake.js';

/** The connections of proxies that take no further ones. */
export interface UnderWay {
  /** Those that have ended since. */
  ended: number;
  /** Those that the container has not taken yet. The kernel tries again after one second, three and seven. */
  waiting: number;
}

/** Resolves when all are over, or nothing happens any more, or it takes too long. @param rest counts them. */
export async function waitForUnderWay(
  rest: (underWay: UnderWay) => Promise<void>,
  { quietMs, limitMs }: RestLimits,
): Promise<void> {
  const over = new AbortController();
  const underWay = { ended: 0, waiting: 0 };
  const patience = async (): Promise<void> => {
    for (let spent = 0; spent < limitMs && !over.signal.aborted; spent += quietMs) {
      const { ended, waiting } = underWay;
      await awake(quietMs, over.signal);
      // One that was taken meanwhile has the next period for its answer.
      if (underWay.ended === ended && underWay.waiting === 0 && waiting === 0) return;
    }
  };
  await Promise.race([rest(underWay), patience()]);
  over.abort();
}
