/** One reading of each of 100 running containers, asked for at once, over a new connection each. */
import type { Engine } from '../test/support/engine.js';
import { BlockingConnection, checkStatus } from './blocking-client.js';
import { atOnce, createContainer, startContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const CONTAINERS = 100;
const TIMES = 3;

/** Returns the replies. All requests are sent before the first reply is read. */
function readAll(engine: Engine, ids: readonly string[]): Buffer[] {
  const connections = ids.map((id) => {
    const connection = new BlockingConnection(engine);
    connection.ask('GET', `/containers/${id}/stats?stream=0&one-shot=1`, 'Connection: close');
    return connection;
  });
  return connections.map((connection) => {
    const reply = connection.readToEnd();
    connection.close();
    return reply;
  });
}

function check(reply: Buffer): void {
  const text = reply.toString();
  checkStatus(text, [200]);
  const body = text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1);
  const { memory_stats } = JSON.parse(body) as { memory_stats: { usage: number } };
  if (!(memory_stats.usage > 0)) throw new Error('a reading is empty');
}

export const stats: Measure = {
  name: 'stats',
  metrics: [{ name: 'stats of 100 containers', unit: 'ms', target: 0.5, moreIsBetter: false }],
  async prepare(engine, { image }) {
    const ids: string[] = [];
    await atOnce(CONTAINERS, 4, async () => {
      const id = await createContainer(engine, { image, command: ['sleep', '100000'] });
      await startContainer(engine, id);
      ids.push(id);
    });
    readAll(engine, ids).forEach(check);
    return async () => {
      const times: number[] = [];
      for (let index = 0; index < TIMES; index++) {
        let replies: readonly Buffer[] = [];
        times.push(
          await timed(async () => {
            replies = readAll(engine, ids);
          }),
        );
        replies.forEach(check);
      }
      return { 'stats of 100 containers': median(times) };
    };
  },
};
