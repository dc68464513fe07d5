/** Calls to services that are offered on a connection. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { GrpcClient } from './grpc-client.js';
import { encode } from './grpc-messages.js';
import { GrpcServer, serverStream, unary } from './grpc-server.js';
import {
  BuildHistoryRequestSchema,
  Control,
  ListWorkersRequestSchema,
  ListWorkersResponseSchema,
} from './proto/gen/control_pb.js';

const CONTROL = '/moby.buildkit.v1.Control';
const PATIENCE_MS = 10_000;

const signals: AbortSignal[] = [];
const server = new GrpcServer([
  [
    Control,
    [
      unary(Control.method.listWorkers, async (_, { signal }) => (signals.push(signal), {})),
      serverStream(Control.method.listenBuildHistory, async function* ({ ref }, { signal }) {
        signals.push(signal);
        if (ref !== '') await once(signal, 'abort');
        yield {};
      }),
    ],
  ],
]);
const listener = createServer((socket) => server.serve(socket));
after(() => (server.close(), listener.close()));

test('the signal of a call tells of a client that leaves, and of none that has its answer', async () => {
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const client = new GrpcClient(connect((listener.address() as AddressInfo).port, '127.0.0.1'));
  const listen = (ref: string): ReturnType<GrpcClient['open']> => {
    const call = client.open(`${CONTROL}/ListenBuildHistory`);
    void call.send(encode(BuildHistoryRequestSchema, { ref }));
    call.end();
    return call;
  };
  try {
    await client.unary(`${CONTROL}/ListWorkers`, [ListWorkersRequestSchema, {}], ListWorkersResponseSchema);
    for await (const message of listen('').messages()) void message;
    const waiting = listen('for the end');
    const over = assert.rejects(waiting.messages()[Symbol.asyncIterator]().next());
    while (signals.length < 3) await new Promise((resolve) => setImmediate(resolve));
    waiting.cancel();
    await over;
    // It comes after the ends of the others.
    if (signals[2]?.aborted === false) await once(signals[2], 'abort', { signal: AbortSignal.timeout(PATIENCE_MS) });
    assert.deepEqual(
      signals.map(({ aborted }) => aborted),
      [false, false, true],
    );
  } finally {
    client.close();
    await client.closed;
  }
});

test('a connection on which nothing comes ends with its client, and with the server', async () => {
  const other = new GrpcServer([]);
  const accepted: Socket[] = [];
  const silent = createServer((socket) => (accepted.push(socket.once('end', () => socket.end())), other.serve(socket)));
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as AddressInfo;
  try {
    const leaving = connect(port, '127.0.0.1').resume();
    leaving.end();
    await once(leaving, 'close', { signal: AbortSignal.timeout(PATIENCE_MS) });
    const staying = connect(port, '127.0.0.1').resume();
    while (accepted.length < 2) await new Promise((resolve) => setImmediate(resolve));
    other.close();
    await once(staying, 'close', { signal: AbortSignal.timeout(PATIENCE_MS) });
  } finally {
    silent.close();
  }
});
