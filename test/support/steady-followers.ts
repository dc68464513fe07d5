/** Clients that follow something while a daemon is replaced: they come back where they were, and see all of it once. */
import { setTimeout as delay } from 'node:timers/promises';
import { jsonLines, open } from './http.js';

const PAUSE_MS = 20;

export interface Follower {
  /** Resolves with all that was seen, in its order, when `last` is there. */
  until(last: string): Promise<readonly string[]>;
  /** How often it had to come back. */
  readonly returns: () => number;
  /** Has it not come back once its connection is over. */
  end(): void;
}

/** Follows the events of volumes by their cursors. What it sees are names of volumes that were created. */
export function followVolumes(socketPath: string, sinceSeconds: number): Follower {
  const filters = encodeURIComponent(JSON.stringify({ type: ['volume'], event: ['create'] }));
  let since = String(sinceSeconds);
  return follow(async function* () {
    const path = `/events?since=${encodeURIComponent(since)}&filters=${filters}`;
    const { message } = await open(socketPath, 'GET', path);
    for await (const event of jsonLines<VolumeEvent>(message)) {
      since = event.cursor;
      yield event.Actor.ID;
    }
  });
}

interface VolumeEvent {
  readonly cursor: string;
  readonly Actor: { readonly ID: string };
}

/** Follows the log of a container with a terminal by the times of its lines. */
export function followLog(socketPath: string, name: string): Follower {
  let since = '0';
  let last = '';
  /** Lines that were read together have one time. */
  let ofLast = 0;
  return follow(async function* () {
    const path = `/containers/${name}/logs?stdout=1&follow=1&timestamps=1&since=${since}`;
    const { message } = await open(socketPath, 'GET', path);
    let known = ofLast;
    let rest = '';
    for await (const chunk of message) {
      const lines = (rest + (chunk as Buffer).toString()).replaceAll('\r', '').split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const [time = '', ...words] = line.split(' ');
        // The lines of the last time come again.
        if (time === last && known-- > 0) continue;
        ofLast = time === last ? ofLast + 1 : 1;
        last = time;
        known = 0;
        const [seconds = '', fraction = ''] = time.replace('Z', '').split('.');
        since = `${Date.parse(`${seconds}Z`) / 1000}.${fraction.padEnd(9, '0')}`;
        yield words.join(' ');
      }
    }
  });
}

function follow(read: () => AsyncGenerator<string>): Follower {
  const seen: string[] = [];
  let wanted: string | undefined;
  let returns = -1;
  const over = new AbortController();
  const run = async (): Promise<void> => {
    while (!over.signal.aborted) {
      returns++;
      try {
        for await (const one of read()) {
          seen.push(one);
          if (one === wanted) return;
        }
      } catch {
        // The daemon is being replaced.
      }
      if (wanted !== undefined && seen.includes(wanted)) return;
      await delay(PAUSE_MS);
    }
  };
  const done = run();
  return {
    until: async (last) => {
      wanted = last;
      if (!seen.includes(last)) await done;
      return seen;
    },
    returns: () => returns,
    end: () => over.abort(),
  };
}
