import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { parseChallenges } from './challenge.js';
import { credentialsFor, credentialsKey, decodeCredentials } from './credentials.js';
import { hostsFor, type RegistryRules } from './endpoint.js';
import { retryAfterMs } from './failure.js';
import { type Descriptor, parseManifest } from './manifest.js';
import { bestManifest, canRun, formatPlatform, hostPlatform, parsePlatform } from './platform.js';
import { parseConfig } from './resolve.js';
import { schemeOfHeader } from './token.js';

test('challenges are parsed with quotes, commas, escapes and several schemes', () => {
  const table: readonly (readonly [string | undefined, unknown])[] = [
    [undefined, []],
    ['', []],
    ['Basic realm="r"', [{ scheme: 'basic', parameters: new Map(Object.entries({ realm: 'r' })) }]],
    [
      'Bearer realm="https://auth/token",service="a, b",scope="repository:x:pull,push"',
      [
        {
          scheme: 'bearer',
          parameters: new Map(
            Object.entries({ realm: 'https://auth/token', service: 'a, b', scope: 'repository:x:pull,push' }),
          ),
        },
      ],
    ],
    [
      'Basic realm=plain, Bearer realm="t" , error="x\\"y"',
      [
        { scheme: 'basic', parameters: new Map(Object.entries({ realm: 'plain' })) },
        { scheme: 'bearer', parameters: new Map(Object.entries({ realm: 't', error: 'x"y' })) },
      ],
    ],
    ['Negotiate', [{ scheme: 'negotiate', parameters: new Map() }]],
    ['Bearer realm="unterminated', [{ scheme: 'bearer', parameters: new Map() }]],
    ['"""', []],
  ];
  for (const [header, expected] of table) assert.deepEqual(parseChallenges(header), expected, header);
  assert.deepEqual(schemeOfHeader('Basic realm="r", Bearer realm="https://t",service="s"'), {
    kind: 'bearer',
    realm: 'https://t',
    service: 's',
  });
  assert.deepEqual(schemeOfHeader('Negotiate'), { kind: 'none' });
});

test('random challenges never throw', () => {
  for (let round = 0; round < 2000; round++) {
    const text = Array.from({ length: 20 }, () => 'Bearer=", \\ab'.charAt(Math.floor(Math.random() * 13))).join('');
    parseChallenges(text);
  }
});

test('credentials are read from every base64 that clients send', () => {
  const json = JSON.stringify({ username: 'me?>', password: 'p\u00e4ss~~~', serveraddress: 'x' });
  const expected = { username: 'me?>', password: 'p\u00e4ss~~~', serverAddress: 'x' };
  const base64 = Buffer.from(json).toString('base64');
  const url = base64.replaceAll('+', '-').replaceAll('/', '_');
  for (const text of [base64, url, base64.replace(/=+$/, ''), url.replace(/=+$/, ''), ` ${url} `])
    assert.deepEqual(decodeCredentials(text), expected);
  for (const text of [
    undefined,
    '',
    'e30=',
    'garbage',
    '!!!',
    Buffer.from('[]').toString('base64'),
    Buffer.from('{"username":5}').toString('base64'),
  ]) {
    assert.equal(decodeCredentials(text), undefined);
  }
  assert.deepEqual(
    decodeCredentials(Buffer.from('{"identitytoken":"i","registrytoken":"r","auth":"x"}').toString('base64')),
    { identityToken: 'i', registryToken: 'r' },
  );
  assert.notEqual(credentialsKey(expected), credentialsKey({ ...expected, password: 'other' }));
  assert.ok(!credentialsKey(expected).includes('me'));
});

test('credentials that are marked for one registry are not for another', () => {
  const marked = (serverAddress: string) => ({ username: 'me', password: 'secret', serverAddress });
  for (const [address, domain] of [
    ['https://index.docker.io/v1/', 'docker.io'],
    ['docker.io', 'docker.io'],
    ['registry-1.docker.io', 'docker.io'],
    ['registry.test:5000', 'registry.test:5000'],
    ['https://Registry.test/v2/', 'registry.test'],
    ['http://127.0.0.1:5000', '127.0.0.1:5000'],
  ] as const)
    assert.deepEqual(credentialsFor(domain, marked(address)), marked(address), `${address} for ${domain}`);
  for (const [address, domain] of [
    ['registry.test', 'registry.test:5000'],
    ['registry.test', 'evil.test'],
    ['https://index.docker.io/v1/', 'registry.test'],
    ['registry.test@evil.test', 'registry.test'],
  ] as const)
    assert.equal(credentialsFor(domain, marked(address)), undefined, `${address} for ${domain}`);
  assert.deepEqual(credentialsFor('any.test', { username: 'me' }), { username: 'me' });
});

test('platforms are parsed and normalised', () => {
  const table: readonly (readonly [string, string])[] = [
    ['linux/amd64', 'linux/amd64'],
    ['Linux/x86_64', 'linux/amd64'],
    ['linux/aarch64', 'linux/arm64'],
    ['linux/arm64/v8', 'linux/arm64'],
    ['linux/arm', 'linux/arm/v7'],
    ['linux/armhf', 'linux/arm/v7'],
    ['linux/arm/6', 'linux/arm/v6'],
    ['linux/amd64/v1', 'linux/amd64'],
    ['arm64', 'linux/arm64'],
    ['linux/386', 'linux/386'],
    ['linux/foo', 'linux/foo'],
    ['s390x', 'linux/s390x'],
    ['macOS', `darwin/${hostPlatform().architecture}`],
  ];
  for (const [text, expected] of table) assert.equal(formatPlatform(parsePlatform(text)), expected, text);
  for (const text of ['', 'a/b/c/d', 'linux/', 'linux/a b', 'nintendo64', 'constructor'])
    assert.throws(
      () => parsePlatform(text),
      (error) => isEngineError(error, 'invalid'),
      text,
    );
  assert.equal(hostPlatform().os, 'linux');
});

const entry = (platform: string | undefined, digit: string): Descriptor => {
  const [os = '', architecture = '', variant = ''] = platform?.split('/') ?? [];
  return {
    mediaType: 'm',
    digest: `sha256:${digit.repeat(64)}`,
    sizeBytes: 1,
    platform: platform === undefined ? undefined : { os, architecture, variant, osVersion: '', osFeatures: [] },
    annotations: undefined,
  };
};

test('the best manifest for a platform is chosen', () => {
  const pick = (wanted: string, ...offered: (string | undefined)[]): number =>
    Number(
      bestManifest(
        offered.map((platform, index) => entry(platform, String(index))),
        parsePlatform(wanted),
      )?.digest.charAt(7) ?? -1,
    );
  assert.equal(pick('linux/amd64/v3', 'linux/amd64', 'linux/amd64/v2', 'linux/amd64/v3', 'linux/amd64/v4'), 2);
  assert.equal(pick('linux/amd64/v2', 'linux/amd64', 'linux/amd64/v3'), 0);
  assert.equal(pick('linux/amd64', 'linux/amd64/v2'), -1);
  assert.equal(pick('linux/arm64', 'linux/arm/v7', 'linux/arm64/v8'), 1);
  assert.equal(pick('linux/arm64', 'linux/arm/v6', 'linux/arm/v7'), 1);
  assert.equal(pick('linux/arm/v7', 'linux/arm/v5', 'linux/arm/v6'), 1);
  assert.equal(pick('linux/arm/v6', 'linux/arm/v7'), -1);
  assert.equal(pick('linux/amd64', 'unknown/unknown', undefined, 'linux/amd64'), 2);
  assert.equal(pick('linux/amd64', 'unknown/unknown', undefined), 1);
  assert.equal(pick('linux/amd64', 'unknown/unknown', 'windows/amd64'), -1);
  assert.ok(canRun(parsePlatform('linux/amd64/v3'), parsePlatform('linux/amd64')));
});

test('odd manifests are told apart', () => {
  const parse = (document: unknown, type?: string) => parseManifest(Buffer.from(JSON.stringify(document)), type, 'x');
  const oci = {
    schemaVersion: 2,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: `sha256:${'a'.repeat(64)}`, size: 1 },
    layers: [],
  };
  assert.equal(parse(oci).kind, 'image');
  assert.equal(parse({ schemaVersion: 2, manifests: [] }).kind, 'index');
  assert.equal(parse(oci, 'text/plain').kind, 'image');
  assert.equal(
    parse(
      { ...oci, mediaType: 'application/vnd.oci.image.manifest.v1+json' },
      'application/vnd.oci.image.manifest.v1+json; charset=utf-8',
    ).kind,
    'image',
  );
  assert.throws(
    () =>
      parse(
        { ...oci, mediaType: 'application/vnd.oci.image.index.v1+json' },
        'application/vnd.oci.image.manifest.v1+json',
      ),
    /mediaType in manifest should be/,
  );
  assert.throws(
    () =>
      parse({ ...oci, layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: 'sha256:x', size: 1 }] }),
    /unsupported digest/,
  );
  assert.throws(
    () =>
      parse({
        ...oci,
        layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: `sha256:${'a'.repeat(64)}`, size: -1 }],
      }),
    /bad size/,
  );
  assert.throws(() => parse({ ...oci, layers: Array.from({ length: 501 }, () => oci.config) }), /more than 500 layers/);
  assert.throws(() => parse(null), /not an object/);
});

const rules = (overrides: Partial<RegistryRules> = {}): RegistryRules => ({
  insecure: [],
  mirrors: [],
  certsDir: '/nonexistent',
  ...overrides,
});
const addresses = async (host: string): Promise<string[]> =>
  host === 'inside.example' ? ['10.1.2.3'] : host === 'six.example' ? ['fd00::1'] : ['93.184.216.34'];
const urlsFor = async (domain: string, overrides?: Partial<RegistryRules>): Promise<string[]> =>
  (await hostsFor(domain, rules(overrides), addresses)).flatMap(({ endpoints }) =>
    endpoints.map(({ url, tls }) => `${url}${tls.verify ? '' : ' unverified'}`),
  );

test('registries are secure unless they are local or declared otherwise', async () => {
  assert.deepEqual(await urlsFor('reg.example:5000'), ['https://reg.example:5000']);
  const insecure = (host: string): string[] => [`https://${host} unverified`, `http://${host} unverified`];
  for (const host of ['127.0.0.1:5000', '127.9.9.9', '[::1]:5000'])
    assert.deepEqual(await urlsFor(host), insecure(host));
  assert.deepEqual(await urlsFor('reg.example:5000', { insecure: ['reg.example:5000'] }), insecure('reg.example:5000'));
  assert.deepEqual(await urlsFor('reg.example:5001', { insecure: ['reg.example:5000'] }), ['https://reg.example:5001']);
  assert.deepEqual(await urlsFor('inside.example', { insecure: ['10.0.0.0/8'] }), insecure('inside.example'));
  assert.deepEqual(await urlsFor('six.example', { insecure: ['fd00::/8'] }), insecure('six.example'));
  assert.deepEqual(await urlsFor('outside.example', { insecure: ['10.0.0.0/8'] }), ['https://outside.example']);
});

test('mirrors stand before the default registry only', async () => {
  const mirrors = ['https://m1.example/', 'http://127.0.0.1:1/prefix/'];
  assert.deepEqual(await urlsFor('docker.io', { mirrors }), [
    'https://m1.example',
    'http://127.0.0.1:1/prefix unverified',
    'https://registry-1.docker.io',
  ]);
  assert.deepEqual(await urlsFor('other.example', { mirrors }), ['https://other.example']);
  await assert.rejects(urlsFor('docker.io', { mirrors: ['ftp://x'] }), (error) => isEngineError(error, 'invalid'));
});

test('Retry-After is seconds or a date', () => {
  assert.equal(retryAfterMs('2', 0), 2000);
  assert.equal(retryAfterMs('Thu, 01 Jan 1970 00:00:05 GMT', 2000), 3000);
  assert.equal(retryAfterMs('Thu, 01 Jan 1970 00:00:01 GMT', 2000), 0);
  assert.equal(retryAfterMs('soon', 0), undefined);
  assert.equal(retryAfterMs(undefined, 0), undefined);
});

test('documents that have more in them than real ones are refused before they are parsed', () => {
  const many = Buffer.from(`{"rootfs":{"diff_ids":[]},"x":[${'0,'.repeat(20_000)}0]}`);
  assert.throws(() => parseManifest(many, undefined, 'x'), /invalid manifest: .*more than 5000 members/);
  assert.throws(() => parseConfig(many), /invalid image configuration: .*more than 20000 members/);
  const spread = Buffer.from(`[${`[${'0,'.repeat(19_000)}0],`.repeat(5)}0]`);
  assert.throws(() => parseConfig(spread), /more than 80000 values/);
  const long = Buffer.from(JSON.stringify({ x: 'y'.repeat(2 << 20) }));
  assert.throws(() => parseConfig(long), /invalid image configuration: larger than 2097152 bytes/);
});

test('configurations have no more labels, variables and ports than the main thread can go through at once', () => {
  const table = (length: number): object => Object.fromEntries(Array.from({ length }, (_, at) => [`${at}/tcp`, {}]));
  const labels = (length: number): object => Object.fromEntries(Array.from({ length }, (_, at) => [`l${at}`, 'v']));
  const parse = (config: object, others: object = {}): unknown =>
    parseConfig(Buffer.from(JSON.stringify({ config, rootfs: { diff_ids: [] }, ...others })));
  parse({ Labels: labels(5000), Env: Array(5000).fill('A=b'), ExposedPorts: table(20_000) });
  assert.throws(() => parse({ Labels: labels(5001) }), /config\.Labels has more than 5000 members/);
  assert.throws(() => parse({ Env: Array(5001).fill('A=b') }), /config\.Env has more than 5000 members/);
  assert.throws(() => parse({ Volumes: table(5001) }), /config\.Volumes has more than 5000 members/);
  assert.throws(
    () => parse({}, { history: Array.from({ length: 5001 }, () => ({})) }),
    /history has more than 5000 members/,
  );
});
