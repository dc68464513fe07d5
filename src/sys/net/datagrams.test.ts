import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'node:test';
import { answerDatagrams, sendDatagram } from './datagrams.js';
import { closeFd } from '../files/fd.js';
import { bindPort } from './port-socket.js';
import { waitFor } from '../../../test/support/wait.js';

test('each message of a batch gets its own answer, now, later, or never', async () => {
  const { fd, port } = bindPort('udp', '127.0.0.1', 0);
  const clients = await Promise.all(
    Array.from({ length: 40 }, async (_, index) => {
      // The end of a failed test does not wait for it.
      const socket = createSocket('udp4').unref();
      socket.bind(0, '127.0.0.1');
      await once(socket, 'listening');
      const answers: string[] = [];
      socket.on('message', (message) => answers.push(String(message)));
      // Where this fails, as without a loopback link, there is nothing to take below.
      await new Promise<void>((resolve, reject) =>
        socket.send(`question ${index}`, port, '127.0.0.1', (error) => (error ? reject(error) : resolve())),
      );
      return { socket, answers };
    }),
  );
  const late: { readonly text: string; readonly peer: Buffer }[] = [];
  let taken = 0;
  const takeSome = (): void =>
    answerDatagrams(fd, (slot, length, peer) => {
      taken++;
      const text = slot.toString('latin1', 0, length).replace('question', 'answer to');
      const index = Number(text.slice('answer to '.length));
      if (index % 3 === 0) return slot.write(text.padEnd(1000 + index, '.'), 'latin1');
      if (index % 3 === 1) late.push({ text, peer: Buffer.from(peer) });
      return 0;
    });
  await waitFor(
    () => `${clients.length} questions, of which ${taken} came`,
    () => {
      takeSome();
      return taken >= clients.length;
    },
  );
  for (const { text, peer } of late) sendDatagram(fd, Buffer.from(text), peer);
  const expected = clients.map(
    (_, index) => [[`answer to ${index}`.padEnd(1000 + index, '.')], [`answer to ${index}`], []][index % 3],
  );
  while (clients.some(({ answers }, index) => answers.length < (expected[index]?.length ?? 0)))
    await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(
    clients.map(({ answers }) => answers),
    expected,
  );
  for (const { socket } of clients) socket.close();
  closeFd(fd);
  // Nothing to take, and nobody to send to.
  answerDatagrams(fd, () => assert.fail());
});
