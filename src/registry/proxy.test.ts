import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseProxy, proxyHeaders } from './proxy.js';

const settings = (noProxy: string): Parameters<typeof chooseProxy>[1] => ({
  httpProxy: 'plain:1',
  httpsProxy: 'http://user:p%40ss@secure:2',
  noProxy,
});
const proxied = (url: string, noProxy = ''): string | undefined => chooseProxy(new URL(url), settings(noProxy))?.host;

test('each scheme has its proxy, the machine itself none', () => {
  assert.equal(proxied('http://a.test/'), 'plain:1');
  assert.equal(proxied('https://a.test/'), 'secure:2');
  for (const url of ['https://localhost:5000', 'https://127.3.4.5', 'https://[::1]:5000'])
    assert.equal(proxied(url), undefined, url);
  assert.equal(
    chooseProxy(new URL('http://a.test'), { httpProxy: '', httpsProxy: 'http://x', noProxy: '' }),
    undefined,
  );
});

test('exceptions', () => {
  for (const [url, list, isDirect] of [
    ['https://a.test', '*', true],
    ['https://a.test', 'b.test, A.TEST', true],
    ['https://sub.a.test', 'a.test', true],
    ['https://nota.test', 'a.test', false],
    ['https://a.test', '.a.test', false],
    ['https://sub.a.test', '*.a.test', true],
    ['https://a.test:5000', 'a.test:5000', true],
    ['https://a.test', 'a.test:5000', false],
    ['https://a.test', 'a.test:443', true],
    ['https://10.1.2.3', '10.0.0.0/8', true],
    ['https://11.1.2.3', '10.0.0.0/8', false],
    ['https://10.1.2.3:5000', '10.1.2.3', true],
    ['https://[fd00::5]', 'fd00::/8', true],
    ['https://10.1.2.3', '10.0.0.0/99, 10.0.0.0/x, 10.1.2.3/, 10.0.0.0/8:443, name/8', false],
    ['https://a.test', '', false],
  ] as const) {
    assert.equal(proxied(url, list) === undefined, isDirect, `${url} with ${list}`);
  }
});

test('who logs in at the proxy', () => {
  assert.deepEqual(proxyHeaders(new URL('http://user:p%40ss@x')), {
    'proxy-authorization': `Basic ${Buffer.from('user:p@ss').toString('base64')}`,
  });
  assert.deepEqual(proxyHeaders(new URL('http://x')), {});
});
