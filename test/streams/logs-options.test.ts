/**
 * Options of log drivers and queries of logs, as the original takes and refuses them (ENGINE_UNDER_TEST=dockerd passes,
 * too).
 */
import assert from 'node:assert/strict';
import { mkdir, readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, type Reply } from '../support/http.js';
import { logFlags } from '../support/remote-logs.js';
import { waitFor } from '../support/wait.js';

const isPeer = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
/** Nobody listens there; a datagram to it is no failure. */
const NOWHERE = 'syslog-address=udp://127.0.0.1:9';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

/** By request, as these are many. What the CLI says of a refusal is tested elsewhere. */
function create(driver: string, options: readonly string[], members: object = {}): Promise<Reply> {
  const config = Object.fromEntries(options.map((option) => /^(.*?)=(.*)$/s.exec(option)?.slice(1) ?? [option, '']));
  const hostConfig = { LogConfig: { Type: driver, Config: config }, ...members };
  return call(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image, Cmd: ['true'], HostConfig: hostConfig },
  });
}

const messageOf = ({ text }: Reply): string => (JSON.parse(text) as { message: string }).message;

async function createRefused(driver: string, options: readonly string[], text: string): Promise<void> {
  const reply = await create(driver, options);
  assert.deepEqual([reply.status, messageOf(reply)], [400, text], `${driver} ${options.join(' ')}`);
}

async function startRefused(driver: string, options: readonly string[], text: string | RegExp): Promise<void> {
  const made = await create(driver, options, { AutoRemove: true });
  assert.equal(made.status, 201, made.text);
  const { Id } = JSON.parse(made.text) as { Id: string };
  const reply = await call(engine.socketPath, 'POST', `/containers/${Id}/start`);
  // A refusal that sounds like a missing program has status 404.
  assert.ok(reply.status >= 400, reply.text);
  const said = messageOf(reply);
  const message = /failed to initialize logging driver: (.*)/.exec(said)?.[1] ?? said;
  if (typeof text === 'string') assert.equal(message, text, `${driver} ${options.join(' ')}`);
  else assert.match(message, text, `${driver} ${options.join(' ')}`);
}

/** The log as the API gives it, demultiplexed. */
async function logs(name: string, query: string): Promise<string> {
  const { status, body } = await call(engine.socketPath, 'GET', `/v1.41/containers/${name}/logs?${query}`);
  assert.equal(status, 200, body.toString());
  let text = '';
  for (let at = 0; at + 8 <= body.length; at += 8 + body.readUInt32BE(at + 4))
    text += body.toString('utf8', at + 8, at + 8 + body.readUInt32BE(at + 4));
  return text;
}

test('create checks the options of each driver', async () => {
  const refusals: [string, string[], string][] = [
    ['syslog', ['foo=1'], "unknown log opt 'foo' for syslog log driver"],
    ['syslog', ['max-size=1'], "unknown log opt 'max-size' for syslog log driver"],
    ['syslog', ['cache-max-foo=1'], "unknown log opt 'cache-max-foo' for syslog log driver"],
    ['syslog', ['syslog-address=1.2.3.4'], 'syslog-address should be in form proto://address, got 1.2.3.4'],
    ['syslog', ['syslog-address=foo://1.2.3.4'], 'syslog-address should be in form proto://address, got foo://1.2.3.4'],
    ['syslog', ['syslog-address=tcp://1.2.3.4:bad'], 'parse "tcp://1.2.3.4:bad": invalid port ":bad" after host'],
    ['syslog', ['syslog-address=tcp://[::1'], `parse "tcp://[::1": missing ']' in host`],
    ['syslog', ['syslog-address=unix:///nope/x'], 'stat /nope/x: no such file or directory'],
    ['syslog', ['syslog-address=unixgram:///nope/x'], 'stat /nope/x: no such file or directory'],
    ['syslog', ['syslog-facility=bogus'], 'invalid syslog facility'],
    ['syslog', ['syslog-facility=24'], 'invalid syslog facility'],
    ['syslog', ['syslog-format=x'], 'Invalid syslog format'],
    ['syslog', ['mode=x'], 'logger: logging mode not supported: x'],
    ['syslog', ['max-buffer-size=1m'], "logger: max-buffer-size option is only supported with 'mode=non-blocking'"],
    ['syslog', ['cache-disabled=x'], 'invalid value for option cache-disabled: x'],
    ['gelf', [], 'gelf-address is a required parameter'],
    ['gelf', ['gelf-address=udp://h:1', 'foo=1'], 'unknown log opt "foo" for gelf log driver'],
    ['gelf', ['gelf-address=h:1'], 'gelf-address should be in form proto://address, got h:1'],
    ['gelf', ['gelf-address=udp://h'], 'gelf: please provide gelf-address as proto://host:port'],
    ['gelf', ['gelf-address=unix:///x'], 'gelf: endpoint needs to be TCP or UDP'],
    ['gelf', ['gelf-address=tcp://h:1', 'gelf-compression-type=gzip'], 'compression is only supported on UDP'],
    [
      'gelf',
      ['gelf-address=udp://h:1', 'gelf-compression-type=lz'],
      'unknown value "lz" for log opt "gelf-compression-type" for gelf log driver',
    ],
    [
      'gelf',
      ['gelf-address=udp://h:1', 'gelf-compression-level=10'],
      'unknown value "10" for log opt "gelf-compression-level" for gelf log driver',
    ],
    ['gelf', ['gelf-address=udp://h:1', 'gelf-tcp-max-reconnect=1'], '"gelf-tcp-max-reconnect" is only valid for TCP'],
    [
      'gelf',
      ['gelf-address=tcp://h:1', 'gelf-tcp-max-reconnect=-1'],
      '"gelf-tcp-max-reconnect" must be a positive integer',
    ],
    ['fluentd', ['foo=1'], "unknown log opt 'foo' for fluentd log driver"],
    ['fluentd', ['fluentd-address=h:x'], 'invalid fluentd-address h:x: strconv.Atoi: parsing "x": invalid syntax'],
    [
      'fluentd',
      ['fluentd-address=tcp://h:1:2'],
      'invalid fluentd-address tcp://h:1:2: address h:1:2: too many colons in address',
    ],
    ['fluentd', ['fluentd-address=[::1'], "invalid fluentd-address [::1: address [::1: missing ']' in address"],
    ['fluentd', ['fluentd-buffer-limit=x'], "invalid size: 'x'"],
    ['fluentd', ['fluentd-retry-wait=1x'], 'time: unknown unit "x" in duration "1x"'],
    ['fluentd', ['fluentd-retry-wait=5'], 'time: missing unit in duration "5"'],
    ['fluentd', ['fluentd-max-retries=-1'], 'strconv.ParseUint: parsing "-1": invalid syntax'],
    ['fluentd', ['fluentd-async=maybe'], 'strconv.ParseBool: parsing "maybe": invalid syntax'],
    [
      'fluentd',
      ['fluentd-async=true', 'fluentd-async-connect=true'],
      "conflicting options: cannot specify both 'fluentd-async' and 'fluentd-async-connect",
    ],
    ['journald', ['foo=1'], "unknown log opt 'foo' for journald log driver"],
    ['splunk', ['foo=1'], "unknown log opt 'foo' for splunk log driver"],
    ['local', ['labels=x'], "unknown log opt 'labels' for log driver local"],
    ['json-file', ['foo=1'], "unknown log opt 'foo' for json-file log driver"],
  ];
  for (const refusal of refusals) await createRefused(...refusal);
  if (!isPeer)
    for (const driver of ['x', 'awslogs', 'gcplogs', 'etwlogs', 'logentries'])
      await createRefused(driver, [], `error looking up logging plugin ${driver}: plugin "${driver}" not found`);
  assert.equal(await engineOk(engine, ['ps', '-aq']), '', 'a refused container is there');
});

test('a start is refused when the log cannot be opened, and leaves nothing', async () => {
  await startRefused(
    'syslog',
    ['syslog-address=tcp://127.0.0.1:1'],
    'dial tcp 127.0.0.1:1: connect: connection refused',
  );
  await startRefused(
    'syslog',
    ['syslog-address=tcp+tls://127.0.0.1:1'],
    'dial tcp 127.0.0.1:1: connect: connection refused',
  );
  await startRefused(
    'syslog',
    ['syslog-address=tcp+tls://127.0.0.1:1', 'syslog-tls-ca-cert=/nope'],
    /^could not read CA certificate "\/nope": /,
  );
  await startRefused('syslog', ['syslog-address=udp://nope.invalid:1'], /^dial udp: lookup nope\.invalid/);
  await startRefused(
    'gelf',
    ['gelf-address=tcp://127.0.0.1:1'],
    'gelf: cannot connect to GELF endpoint: 127.0.0.1:1 dial tcp 127.0.0.1:1: connect: connection refused',
  );
  await startRefused('fluentd', ['fluentd-address=127.0.0.1:1'], 'dial tcp 127.0.0.1:1: connect: connection refused');
  await startRefused('fluentd', ['fluentd-address=udp://127.0.0.1:1'], 'unknown network udp');
  await startRefused(
    'fluentd',
    ['fluentd-address=unix:///nope'],
    'dial unix /nope: connect: no such file or directory',
  );
  await startRefused('journald', [], 'journald is not enabled on this host');
  await startRefused('splunk', [], 'splunk: splunk-url is expected');
  await startRefused('splunk', ['splunk-url=http://127.0.0.1:1/'], 'splunk: splunk-token is expected');
  await startRefused(
    'splunk',
    ['splunk-url=http://127.0.0.1:1/x', 'splunk-token=x'],
    'splunk: expected format scheme://dns_name_or_ip:port for splunk-url',
  );
  await startRefused(
    'splunk',
    ['splunk-url=http://127.0.0.1:1/', 'splunk-token=x', 'splunk-gzip-level=20'],
    "not supported level '20' for splunk-gzip-level (supported values between -1 and 9)",
  );
  await startRefused(
    'splunk',
    ['splunk-url=http://127.0.0.1:1/', 'splunk-token=x'],
    /^Options "http:\/\/127\.0\.0\.1:1\/services\/collector\/event\/1\.0": .*/,
  );
  await startRefused('json-file', ['max-size=0'], 'max-size must be a positive number');
  await waitFor('the containers to be removed', async () => (await engineOk(engine, ['ps', '-aq'])) === '');
});

test('bad times are refused, odd numbers of lines are all', async () => {
  await engineOk(engine, ['run', '--name', 'odd', image, 'sh', '-c', 'echo one; echo two']);
  const refusals: [string, string][] = [
    ['since=abc', 'strconv.ParseInt: parsing \\"abc\\": invalid syntax'],
    ['until=abc', 'strconv.ParseInt: parsing \\"abc\\": invalid syntax'],
    ['since=1.x', 'strconv.ParseInt: parsing \\"x\\": invalid syntax'],
    ['since=2020-01-01T00:00:00Z', 'strconv.ParseInt: parsing \\"2020-01-01T00:00:00Z\\": invalid syntax'],
    ['since=1.', 'strconv.ParseInt: parsing \\"\\": invalid syntax'],
    ['since=.5', 'strconv.ParseInt: parsing \\"\\": invalid syntax'],
    // The original shows what it has got: there are no texts for such a time.
    ...(isPeer
      ? []
      : ([['since=253402300800', 'strconv.ParseInt: parsing \\"253402300800\\": value out of range']] satisfies [
          string,
          string,
        ][])),
    ['until=99999999999999999999', 'strconv.ParseInt: parsing \\"99999999999999999999\\": value out of range'],
  ];
  for (const [query, text] of refusals) {
    const { status, text: body } = await call(engine.socketPath, 'GET', `/v1.41/containers/odd/logs?stdout=1&${query}`);
    const name = query.slice(0, query.indexOf('='));
    // The original says 500.
    assert.deepEqual(
      [status, body],
      isPeer ? [500, `{"message":"${text}"}\n`] : [400, `{"message":"invalid ${name}: ${text}"}\n`],
      query,
    );
  }
  for (const query of [
    'tail=abc',
    'tail=-1',
    'tail=1.5',
    'tail=all',
    'tail=',
    'since=',
    'since=0',
    'until=0',
    'since=1.1234567890',
    'tail=2',
    'tail=5',
  ])
    assert.equal(await logs('odd', `stdout=1&${query}`), 'one\ntwo\n', query);
  assert.equal(await logs('odd', 'stdout=1&tail=1'), 'two\n');
  assert.equal(await logs('odd', 'stdout=1&tail=0'), '');
  // Nobody reads a directory as a log.
  const path = await engineOk(engine, ['inspect', '--format', '{{.LogPath}}', 'odd']);
  await rm(path);
  await mkdir(path);
  assert.equal((await call(engine.socketPath, 'GET', '/containers/odd/logs?stdout=1')).status, 500);
  await rmdir(path);
  await engineOk(engine, ['rm', 'odd']);
});

test('a remote log is read from its local copy, with or without a running container', async () => {
  await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'remote',
    ...logFlags('syslog', [NOWHERE]),
    image,
    'sh',
    '-c',
    'echo cached; echo too >&2; exec sleep 1000',
  ]);
  await waitFor('the log', async () => (await logs('remote', 'stdout=1&stderr=1')).split('\n').length === 3);
  assert.equal(await logs('remote', 'stdout=1'), 'cached\n');
  assert.equal(await logs('remote', 'stderr=1'), 'too\n');
  assert.match(
    await logs('remote', 'stdout=1&timestamps=1&tail=2'),
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z cached\n$/,
  );
  assert.equal(
    await engineOk(engine, ['inspect', '-f', '{{.LogPath}}|{{.HostConfig.LogConfig.Type}}', 'remote']),
    '|syslog',
  );
  await engineOk(engine, ['kill', 'remote']);
  assert.equal(await engineOk(engine, ['logs', 'remote']), 'cached');
  const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'remote']);
  assert.ok((await readdir(join(engine.dir, 'data', 'containers', id))).includes('container-cached.log'));
  await engineOk(engine, ['rm', 'remote']);
});

test('without a local copy, and with driver none, nothing can be read', async () => {
  const unreadable = async (name: string): Promise<void> => {
    const { status, text } = await call(engine.socketPath, 'GET', `/v1.41/containers/${name}/logs?stdout=1`);
    assert.deepEqual([status, text], [501, '{"message":"configured logging driver does not support reading"}\n']);
  };
  await engineOk(engine, ['create', '--name', 'silent', '--log-driver', 'none', image, 'true']);
  await unreadable('silent');
  await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'uncached',
    ...logFlags('syslog', [NOWHERE, 'cache-disabled=true']),
    image,
    'sleep',
    '1000',
  ]);
  await unreadable('uncached');
  await engineOk(engine, ['kill', 'uncached']);
  await unreadable('uncached');
  assert.match(
    (await docker(engine, ['logs', 'uncached'])).stderr,
    /configured logging driver does not support reading/,
  );
  await engineOk(engine, ['rm', 'silent', 'uncached']);
});

test('labels, variables and the tag are details of each line', async () => {
  const options = ['labels=team', 'labels-regex=^te', 'env=A', 'env-regex=^B', 'tag={{.Name}}'];
  await engineOk(engine, [
    'run',
    '--name',
    'detailed',
    ...logFlags('json-file', options),
    '-e',
    'A=1 2',
    '-e',
    'BB=3',
    '-e',
    'C=4',
    '--label',
    'team=x',
    '--label',
    'other=y',
    image,
    'echo',
    'line',
  ]);
  assert.equal(await engineOk(engine, ['logs', '--details', 'detailed']), 'A=1+2,BB=3,tag=detailed,team=x line');
  await engineOk(engine, ['rm', 'detailed']);
});

test("a terminal's output is one stream; long lines come whole", async () => {
  await engineOk(engine, ['run', '-t', '--name', 'terminal', image, 'sh', '-c', 'echo out; echo err >&2']);
  const { body } = await call(engine.socketPath, 'GET', '/v1.41/containers/terminal/logs?stdout=1');
  assert.equal(body.toString(), 'out\r\nerr\r\n');
  await engineOk(engine, [
    'run',
    '--name',
    'long',
    image,
    'sh',
    '-c',
    `head -c 50000 /dev/zero | tr '\\0' x; echo; echo end`,
  ]);
  assert.equal(await engineOk(engine, ['logs', 'long']), `${'x'.repeat(50_000)}\nend`);
  assert.equal(await engineOk(engine, ['logs', '--tail', '2', 'long']), `${'x'.repeat(50_000 % (16 * 1024))}\nend`);
  await engineOk(engine, ['rm', 'terminal', 'long']);
});
