/** Remote log drivers: what receivers on real sockets get of a container's output. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import {
  gelfMessages,
  hasJournalField,
  httpReceiver,
  streamReceiver,
  udpReceiver,
  unpackAll,
} from '../support/log-receivers.js';
import { waitFor } from '../support/wait.js';
import { BOTH, DEFAULTS, logFlags, runLogged } from '../support/remote-logs.js';
import { Authority } from '../support/certificates.js';

const isPeer = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let dir: string;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'logs-remote-'));
  cleanup.add(() => rm(dir, { recursive: true, force: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

/** Runs a container whose output goes to `driver`, with options `name=value`. */
const run = (driver: string, options: readonly string[], script: string, ...flags: readonly string[]) =>
  runLogged({ engine, image, cleanup }, [...logFlags(driver, options), ...flags], script);

const lines = (bytes: Buffer): string[] =>
  bytes
    .toString()
    .split('\n')
    .filter((line) => line !== '');

test('syslog over udp: the plain form, severity by stream, the facility', async () => {
  const receiver = await udpReceiver();
  const { name } = await run(
    'syslog',
    [`syslog-address=udp://127.0.0.1:${receiver.port}`, 'syslog-facility=local3'],
    BOTH,
    ...DEFAULTS,
  );
  await waitFor('both lines', () => receiver.datagrams().length === 2);
  const [first = '', second = ''] = receiver.datagrams().map(String);
  const stamp = String.raw`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d`;
  assert.match(first, new RegExp(`^<158>${stamp} ${name}/${image}\\[\\d+\\]: to stdout\n$`));
  assert.match(second, new RegExp(`^<155>${stamp} ${name}/${image}\\[\\d+\\]: to stderr\n$`));
  await receiver.close();
});

test('syslog over tcp in the formats of RFC 3164 and 5424', async () => {
  const receiver = await streamReceiver();
  const address = `syslog-address=tcp://127.0.0.1:${receiver.port}`;
  const { id } = await run('syslog', [address, 'syslog-format=rfc3164'], 'echo one');
  await run('syslog', [address, 'syslog-format=rfc5424', 'tag=t'], 'echo two');
  await run(
    'syslog',
    [address, 'syslog-format=rfc5424micro', 'tag={{.Name | upper}}-{{truncate .ID 4}}'],
    'echo three; echo; echo four',
  );
  await waitFor('all lines', () => lines(receiver.received()).length === 4);
  const [one = '', two = '', three = '', four = ''] = lines(receiver.received());
  assert.match(
    one,
    new RegExp(`^<30>[A-Z][a-z]{2} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d ${hostname()} ${id.slice(0, 12)}\\[\\d+\\]: one$`),
  );
  assert.match(
    two,
    new RegExp(`^<30>1 \\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(Z|[+-]\\d\\d:\\d\\d) ${hostname()} t \\d+ t - two$`),
  );
  assert.match(three, /^<30>1 \S+\.\d{6}(Z|[+-]\d\d:\d\d) \S+ C\w+-[0-9a-f]{4} \d+ C\w+-[0-9a-f]{4} - three$/);
  assert.match(four, / - four$/);
  await receiver.close();
});

test('syslog over tls counts octets, verifies the server, and can be told not to', async () => {
  const authority = new Authority(dir, 'ca');
  const { key, cert } = authority.issueServer();
  const receiver = await streamReceiver({ tls: { key: await readFile(key), cert: await readFile(cert) } });
  const address = `syslog-address=tcp+tls://127.0.0.1:${receiver.port}`;
  await run('syslog', [address, 'syslog-format=rfc5424', `syslog-tls-ca-cert=${authority.cert}`], 'echo verified');
  await run('syslog', [address, 'syslog-tls-skip-verify=1'], 'echo trusting');
  await waitFor('both lines', () => lines(receiver.received()).length === 2);
  const [counted = '', plain = ''] = lines(receiver.received());
  assert.equal(
    counted.slice(0, counted.indexOf(' ')),
    String(Buffer.byteLength(counted.slice(counted.indexOf(' ') + 1)) + 1),
  );
  assert.match(plain, /^<30>.*: trusting$/);
  const refused = await docker(engine, ['run', '--rm', '--log-driver', 'syslog', '--log-opt', address, image, 'true']);
  assert.equal(refused.status, 125);
  assert.match(refused.stderr, /failed to initialize logging driver: .*(certificate|self.signed)/);
  await receiver.close();
});

test('syslog over unix sockets of both types', async () => {
  const path = join(dir, 'stream.sock');
  const receiver = await streamReceiver({ path });
  await run('syslog', [`syslog-address=unix://${path}`], 'echo over a stream');
  await waitFor('the line', () => receiver.received().includes('over a stream\n'));
  await receiver.close();
  const datagrams = join(dir, 'dgram.sock');
  const output = join(dir, 'dgram.out');
  const socat = spawn('socat', ['-u', `UNIX-RECV:${datagrams}`, `CREATE:${output}`], { stdio: 'ignore' });
  try {
    await waitFor(
      'the socket',
      async () =>
        (
          await docker(engine, [
            'create',
            '--log-driver',
            'syslog',
            '--log-opt',
            `syslog-address=unixgram://${datagrams}`,
            '--name',
            `probe${Math.random().toString(36).slice(2)}`,
            image,
          ])
        ).status === 0,
    );
    await run('syslog', [`syslog-address=unixgram://${datagrams}`], 'echo in a datagram');
    await waitFor('the line', async () =>
      (await readFile(output, 'utf8').catch(() => '')).includes(': in a datagram\n'),
    );
  } finally {
    socat.kill();
  }
  await engineOk(engine, ['container', 'prune', '-f']);
});

test('gelf over udp: fields, levels, compression, chunks', async () => {
  const receiver = await udpReceiver();
  const address = `gelf-address=udp://127.0.0.1:${receiver.port}`;
  const { id, name } = await run('gelf', [address], BOTH, ...DEFAULTS);
  await run('gelf', [address, 'gelf-compression-type=zlib', 'gelf-compression-level=9'], 'echo zlib');
  await run(
    'gelf',
    [address, 'gelf-compression-type=none'],
    `head -c 6000 /dev/zero | tr '\\0' x; echo; echo; echo short`,
  );
  await waitFor('all messages', () => gelfMessages(receiver.datagrams()).length === 5);
  const [out = {}, err = {}, zlib = {}, long = {}, short = {}] = gelfMessages(receiver.datagrams());
  assert.equal(out['version'], '1.1');
  assert.equal(out['host'], hostname());
  assert.equal(out['short_message'], 'to stdout');
  assert.equal(out['level'], 6);
  assert.ok(Math.abs(Number(out['timestamp']) - Date.now() / 1000) < 60);
  assert.equal(out['_container_id'], id);
  assert.equal(out['_container_name'], name);
  assert.equal(out['_image_name'], image);
  assert.equal(out['_command'], `sh -c ${BOTH}`);
  assert.match(String(out['_image_id']), /^sha256:[0-9a-f]{64}$/);
  assert.match(String(out['_created']), /^\d{4}-\d\d-\d\dT/);
  assert.equal(out['_tag'], `${name}/${image}`);
  assert.equal(out['_TIER'], 'front');
  assert.equal(out['_team'], 'blue');
  assert.equal(err['level'], 3);
  assert.equal(zlib['short_message'], 'zlib');
  assert.equal(long['short_message'], 'x'.repeat(6000));
  assert.equal(short['short_message'], 'short');
  await receiver.close();
});

test('gelf over tcp ends messages with a zero byte, and survives a lost connection', async () => {
  const receiver = await streamReceiver();
  const messages = (): string[] =>
    receiver
      .received()
      .toString()
      .split('\0')
      .filter((text) => text !== '')
      .map((text) => String((JSON.parse(text) as Record<string, unknown>)['short_message']));
  const running = run(
    'gelf',
    [`gelf-address=tcp://127.0.0.1:${receiver.port}`, 'gelf-tcp-max-reconnect=5', 'gelf-tcp-reconnect-delay=1'],
    'echo before; sleep 2; echo after; sleep 1; echo later',
  );
  await waitFor('the first message', () => messages().length === 1);
  receiver.disconnect();
  await running;
  await waitFor('what came later', () => messages().includes('later'));
  // The existing engine does not see that the connection is gone until it has lost a message.
  if (!isPeer) assert.deepEqual(messages(), ['before', 'after', 'later']);
  await receiver.close();
});

test('fluentd: records, partial lines, sub-second times, acknowledgements', async () => {
  const receiver = await streamReceiver({
    answer(_data, socket) {
      for (const message of unpackAll(receiver.received()).slice(acknowledged)) {
        acknowledged++;
        const { chunk } = ((message as unknown[])[3] ?? {}) as { chunk?: string };
        if (chunk !== undefined)
          socket.write(
            Buffer.concat([
              Buffer.from([0x81, 0xa3]),
              Buffer.from('ack'),
              Buffer.from([0xa0 | chunk.length]),
              Buffer.from(chunk),
            ]),
          );
      }
    },
  });
  let acknowledged = 0;
  const address = `fluentd-address=127.0.0.1:${receiver.port}`;
  const { id, name } = await run('fluentd', [address], BOTH, ...DEFAULTS);
  await run(
    'fluentd',
    [address, 'fluentd-request-ack=true', 'fluentd-sub-second-precision=true'],
    `head -c 20000 /dev/zero | tr '\\0' y; echo`,
  );
  await waitFor('all records', () => unpackAll(receiver.received()).length === 4);
  type Message = [tag: string, time: unknown, record: Record<string, string>];
  const [out, err, first, last] = unpackAll(receiver.received()) as Message[];
  assert.equal(out?.[0], `${name}/${image}`);
  assert.ok(typeof out[1] === 'number' && Math.abs(out[1] - Date.now() / 1000) < 60);
  assert.deepEqual(out[2], {
    container_id: id,
    container_name: `/${name}`,
    source: 'stdout',
    log: 'to stdout',
    TIER: 'front',
    team: 'blue',
  });
  assert.equal(err?.[2]['source'], 'stderr');
  assert.ok(((first?.[1] ?? {}) as { nanoseconds?: number }).nanoseconds !== undefined);
  assert.equal(first?.[2]['partial_message'], 'true');
  assert.equal(first[2]['partial_ordinal'], '1');
  assert.equal(first[2]['partial_last'], 'false');
  assert.equal(last?.[2]['partial_last'], 'true');
  assert.equal(last[2]['partial_id'], first[2]['partial_id']);
  assert.equal(`${first[2]['log']}${last[2]['log']}`, 'y'.repeat(20_000));
  await receiver.close();
});

test('fluentd-async starts without a server, and delivers when it comes', async () => {
  const receiver = await streamReceiver();
  await receiver.leave();
  const address = `fluentd-address=127.0.0.1:${receiver.port}`;
  const refused = await docker(engine, ['run', '--rm', '--log-driver', 'fluentd', '--log-opt', address, image, 'true']);
  assert.equal(refused.status, 125);
  assert.match(
    refused.stderr,
    /failed to initialize logging driver: dial tcp 127\.0\.0\.1:\d+: connect: connection refused/,
  );
  const running = run(
    'fluentd',
    [address, 'fluentd-async=true', 'fluentd-retry-wait=100ms'],
    'echo early; sleep 3; echo late',
  );
  await waitFor('the container', async () => (await engineOk(engine, ['ps', '-q'])) !== '');
  await receiver.listen();
  await running;
  const logged = (): string[] =>
    (unpackAll(receiver.received()) as [string, unknown, Record<string, string>][]).map(
      ([, , record]) => record['log'] ?? '',
    );
  await waitFor('both lines', () => logged().length === 2);
  assert.deepEqual(logged(), ['early', 'late']);
  await receiver.close();
});

test('splunk: verified, in batches, compressed, in each format', async () => {
  const receiver = await httpReceiver();
  const options = [`splunk-url=${receiver.url}`, 'splunk-token=secret', 'splunk-index=main'];
  const { name } = await run('splunk', [...options, 'splunk-source=src', 'splunk-sourcetype=st'], BOTH, ...DEFAULTS);
  await run('splunk', [...options, 'splunk-format=json', 'splunk-gzip=true'], `echo '{"a":1}'; echo text`);
  await run('splunk', [...options, 'splunk-format=raw', 'tag='], 'echo raw; echo');
  const posts = (): string[] => receiver.requests.filter(({ method }) => method === 'POST').map(({ body }) => body);
  await waitFor('all posts', () => posts().length === 3);
  assert.equal(receiver.requests[0]?.method, 'OPTIONS');
  const post = receiver.requests.find(({ method }) => method === 'POST');
  assert.equal(post?.path, '/services/collector/event/1.0');
  assert.equal(post.headers.authorization, 'Splunk secret');
  type Message = { readonly event: unknown; readonly [key: string]: unknown };
  const messages = posts().map((body) =>
    body
      .replaceAll('}{', '}\n{')
      .split('\n')
      .map((text) => JSON.parse(text) as Message),
  );
  const [[out, err] = [], [parsed, text] = [], [raw, ...none] = []] = messages;
  assert.deepEqual(out?.event, {
    line: 'to stdout',
    source: 'stdout',
    tag: `${name}/${image}`,
    attrs: { TIER: 'front', team: 'blue' },
  });
  assert.equal((err?.event as { source: string } | undefined)?.source, 'stderr');
  assert.equal(out['host'], hostname());
  assert.equal(out['source'], 'src');
  assert.equal(out['sourcetype'], 'st');
  assert.equal(out['index'], 'main');
  assert.match(String(out['time']), /^\d{10}\.\d{6}$/);
  assert.deepEqual((parsed?.event as { line: unknown } | undefined)?.line, { a: 1 });
  assert.equal((text?.event as { line: unknown } | undefined)?.line, 'text');
  assert.equal(raw?.event, 'raw');
  assert.deepEqual(none, []);
  receiver.status = 403;
  const refused = await docker(engine, ['run', '--rm', ...logFlags('splunk', options), image, 'true']);
  assert.match(refused.stderr, /failed to initialize logging driver: splunk: failed to verify connection - 403/);
  await receiver.close();
});

/** Where the journal listens; tests make one only on machines that have none. */
const JOURNAL = '/run/systemd/journal';

test(
  'journald: one datagram an entry, with the fields of the existing engine',
  { skip: existsSync(JOURNAL) ? 'the machine has a journal' : false },
  async () => {
    const made = await mkdir(JOURNAL, { recursive: true });
    const output = join(dir, 'journal.out');
    const journal = spawn('socat', ['-u', `UNIX-RECV:${JOURNAL}/socket`, `CREATE:${output}`], { stdio: 'ignore' });
    try {
      await waitFor('the socket', () => existsSync(`${JOURNAL}/socket`));
      const { id, name } = await run('journald', [], BOTH, ...DEFAULTS);
      const received = await waitFor('both entries', async () => {
        const bytes = await readFile(output).catch(() => Buffer.alloc(0));
        return bytes.includes('to stderr') ? bytes : undefined;
      });
      const has = (field: string, text: string): boolean => hasJournalField(received, field, text);
      const expected = {
        MESSAGE: 'to stdout',
        PRIORITY: '6',
        CONTAINER_ID: id.slice(0, 12),
        CONTAINER_ID_FULL: id,
        CONTAINER_NAME: name,
        CONTAINER_TAG: `${name}/${image}`,
        SYSLOG_IDENTIFIER: `${name}/${image}`,
        IMAGE_NAME: image,
        TIER: 'front',
        TEAM: 'blue',
      };
      for (const [field, text] of Object.entries(expected))
        assert.ok(has(field, text), `${field}=${text} in ${JSON.stringify(received.toString('latin1'))}`);
      assert.ok(has('PRIORITY', '3') && has('MESSAGE', 'to stderr'));
      assert.ok(has('CONTAINER_LOG_ORDINAL', '1') && has('CONTAINER_LOG_ORDINAL', '2'));
      const epochs = received.toString('latin1').match(/CONTAINER_LOG_EPOCH\n[^]{8}[0-9a-f]{64}\n/g) ?? [];
      assert.deepEqual([epochs.length, new Set(epochs).size], [2, 1]);
    } finally {
      journal.kill();
      if (made !== undefined) await rm(made, { recursive: true });
    }
  },
);

test(
  'lines that a stalled server costs are in inspect; the container is not held',
  { skip: isPeer ? 'the original does not count' : false },
  async () => {
    const path = join(dir, 'stalled.sock');
    const receiver = await streamReceiver({ path });
    cleanup.add(() => receiver.close());
    receiver.stall();
    const count = 500_000;
    const name = 'stalled';
    const options = logFlags('syslog', [`syslog-address=unix://${path}`, 'mode=non-blocking', 'max-buffer-size=64k']);
    const script = `seq ${count}; sleep 1; echo done >&2; exec sleep 1000`;
    await engineOk(engine, ['run', '-d', '--name', name, ...options, image, 'sh', '-c', script]);
    const dropped = async (): Promise<number> =>
      Number(await engineOk(engine, ['inspect', '-f', '{{.LogDroppedLines}}', name]).catch(() => '0'));
    await waitFor('the container to be done', async () =>
      (await docker(engine, ['logs', '--tail', '5', name])).stderr.includes('done'),
    );
    assert.ok((await dropped()) > 1000);
    await waitFor('the warning', () => engine.log.includes('log lines dropped'));
    receiver.resume();
    let counted = 0;
    const received = (): number => lines(receiver.received()).length;
    await waitFor(
      () => `every line to be received (${received()}) or counted (${counted})`,
      async () => received() + (counted = await dropped()) === count + 1,
    );
    assert.equal((await docker(engine, ['rm', '-f', name])).status, 0);
  },
);
