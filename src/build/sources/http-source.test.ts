import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutLogin } from './git-url.js';
import { keptOrder } from './http-source.js';

test('what is shown and written down of an address has no password in it, whatever the password is', () => {
  for (const login of ['me:secret', 'me:se@cret', ':secret', 'secret']) {
    const url = `https://${login}@example.com/file@1?x=a@b`;
    assert.equal(withoutLogin(`Get "${url}": refused`), 'Get "https://xxxxx@example.com/file@1?x=a@b": refused');
    assert.doesNotMatch(JSON.stringify(keptOrder(url)), /cret/);
    assert.deepEqual(keptOrder(url), keptOrder(url));
    assert.notEqual(keptOrder(url).id, keptOrder('https://other:one@example.com/file@1?x=a@b').id);
  }
  assert.equal(keptOrder('https://example.com/a@b').id, 'http https://example.com/a@b');
});
