/** GET /containers/{id}/stats: what a container uses, once or every second. */
import type { ContainerDirectory } from '../../actors/container/directory.js';
import { isRunning } from '../../actors/container/container.record.js';
import type { Sample, StatsFeeds } from '../../actors/stats/feeds.js';
import { invalid } from '../../errors/engine-error.js';
import { statsJson } from '../api/stats-view.js';
import type { Exchange } from '../exchange.js';
import { pump } from '../response-stream.js';
import { route, type Route } from '../route.js';

export interface StatsRouteDeps {
  readonly containers: ContainerDirectory;
  readonly feeds: StatsFeeds;
}

const HEADERS = Object.freeze({ 'Content-Type': 'application/json' });

export function statsRoutes({ containers, feeds }: StatsRouteDeps): Route[] {
  /** Readings that were rendered, for all clients that got the same reading before. */
  const rendered = new WeakMap<
    Sample,
    { readonly previous: Sample | undefined; readonly name: string; readonly text: Buffer }
  >();

  const render = (id: string, sample: Sample, previous: Sample | undefined): Buffer => {
    const name = containers.get(id)?.name ?? '';
    const known = rendered.get(sample);
    if (known && known.previous === previous && known.name === name) return known.text;
    const text = Buffer.from(statsJson({ id, name }, sample.usage, previous?.usage));
    rendered.set(sample, { previous, name, text });
    return text;
  };

  const sendOne = async (x: Exchange, id: string): Promise<void> => {
    const follower = feeds.follow(id);
    x.onClose(() => void follower.return?.());
    // The first reading only gives the second one its deltas.
    const first = await follower.next();
    const second = await follower.next();
    if (first.done || second.done) return x.sendRenderedJson(200, render(id, { usage: undefined }, undefined));
    x.sendRenderedJson(200, render(id, second.value, first.value));
  };

  return [
    route('GET', '/containers/{name...}/stats', async (x) => {
      const record = containers.find(x.param('name'));
      const stream = x.query.flagOr('stream', true);
      const oneShot = x.atLeast(1, 41) && x.query.flag('one-shot');
      if (stream && oneShot) throw invalid('cannot have stream=true and one-shot=true');
      if (stream)
        return pump(
          new StatsStream(feeds.follow(record.id), (sample, previous) => render(record.id, sample, previous)),
          x.stream(200, HEADERS, { isEndless: true }),
        );
      if (!isRunning(record) || record.state.status === 'restarting')
        return x.sendRenderedJson(200, render(record.id, { usage: undefined }, undefined));
      if (oneShot) return x.sendRenderedJson(200, render(record.id, await feeds.once(record.id), undefined));
      return sendOne(x, record.id);
    }),
  ];
}

/** Yields readings as text. It is not a generator, whose `return` would wait for the next reading. */
class StatsStream implements AsyncIterableIterator<Buffer> {
  #previous: Sample | undefined;

  constructor(
    private readonly samples: AsyncIterableIterator<Sample>,
    private readonly render: (sample: Sample, previous: Sample | undefined) => Buffer,
  ) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Buffer, undefined>> {
    const { done, value } = (await this.samples.next()) as IteratorResult<Sample, undefined>;
    if (done === true) return { done, value: undefined };
    const text = this.render(value, this.#previous);
    this.#previous = value;
    return { done: false, value: text };
  }

  async return(): Promise<IteratorResult<Buffer, undefined>> {
    await this.samples.return?.();
    return { done: true, value: undefined };
  }
}
