/** Calls to the services of a client, for which a server of Node stands, with what grpc-go says of itself. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http2';
import { type AddressInfo, connect } from 'node:net';
import { after, test } from 'node:test';
import { GrpcClient } from './grpc-client.js';

const MAX_HEADER_BYTES = 1_048_896;
const server = createServer({ settings: { maxHeaderListSize: MAX_HEADER_BYTES }, maxHeaderListPairs: 100_000 });
after(() => server.close());

test('paths and patterns of a large ignore file reach the client', async () => {
  const came: IncomingHttpHeaders[] = [];
  server.on('stream', (stream, headers) => {
    came.push(headers);
    stream.respond({ ':status': 200, 'grpc-status': '0' }, { endStream: true });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = new GrpcClient(connect(port, '127.0.0.1'));
  try {
    const patterns = Array.from({ length: 3000 }, (_, at) => `directory/of/many/files/${at}-${233 + at}`);
    const call = client.open('/moby.filesync.v1.FileSync/DiffCopy', { metadata: { 'exclude-patterns': patterns } });
    call.end();
    for await (const message of call.messages()) assert.fail(`a message of ${message.length} bytes`);
    assert.equal(String(came[0]?.['exclude-patterns']).split(', ').length, patterns.length);
  } finally {
    client.close();
    await client.closed;
  }
});
