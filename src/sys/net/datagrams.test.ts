import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'node:test';
import { answerDatagrams, sendDatagram } from './datagrams.js';
import { closeFd } from '../files/fd.js';
import { bindPort } from './port-socket.js';

test('each message of a batch gets its own answer, now, later, or never', async () => {
  const { fd, port } = bindPort('udp', '127.0.0.1', 0);
  const clients = await Promise.all(
    Array.from({ length: 40 }, async (_, index) => {
      const socket = createSocket('udp4');
      socket.bind(0, '127.0.0.1');
      await once(socket, 'listening');
      const answers: string[] = [];
      socket.on('message', (message) => answers.push(String(message)));
      await new Promise((resolve) => socket.send(`question ${index}`, port, '127.0.0.1', resolve));
      return { socket, answers };
    }),
  );
  const late: { readonly text: string; readonly peer: Buffer }[] = [];
  let taken = 0;
  while (taken < clients.length) {
    answerDatagrams(fd, (slot, length, peer) => {
      taken++;
      const text = slot.toString('latin1', 0, length).replace('question', 'answer to');
      const index = Number(text.slice('answer to '.length));
      if (index % 3 === 0) return slot.write(text.padEnd(1000 + index, '.'), 'latin1');
      if (index % 3 === 1) late.push({ text, peer: Buffer.from(peer) });
      return 0;
    });
  }
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
