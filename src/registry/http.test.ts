import assert from 'node:assert/strict';
import { test } from 'node:test';
import { identityFor } from './http.js';

test('only the origin that they were meant for sees credentials and the client certificate', () => {
  const identity = {
    headers: { Authorization: 'Basic x', accept: 'a' },
    tls: { verify: true, ca: 'ca', cert: 'cert', key: 'key' },
  };
  const to = (url: string): ReturnType<typeof identityFor> =>
    identityFor(new URL(url), new URL('https://registry.example/v2/'), identity);
  assert.deepEqual(to('https://registry.example/elsewhere'), identity);
  assert.deepEqual(to('https://registry.example:443/elsewhere'), identity);
  // Another host, another port, and the same host without TLS.
  for (const url of ['https://cdn.example/', 'https://registry.example:444/', 'http://registry.example/']) {
    assert.deepEqual(to(url), { headers: { accept: 'a' }, tls: { verify: true, ca: 'ca' } }, url);
  }
});
