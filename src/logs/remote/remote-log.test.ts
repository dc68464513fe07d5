import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { makeFifo } from '../../sys/files/inode.js';
import type { ContainerLog } from '../../ports/logs.js';
import { ALL, collect, logFixture, readAll } from '../log-fixture.js';

const LINE_BYTES = 100;

/** Lines `00000001 xxx…`, so that what arrived can be compared with what was printed. */
function chunkOf(first: number, count: number): Buffer {
  return Buffer.from(
    Array.from(
      { length: count },
      (_, i) => `${String(first + i).padStart(8, '0')} ${'x'.repeat(LINE_BYTES - 10)}\n`,
    ).join(''),
  );
}

/** A server that can be told not to read, and to go away and come back at the same address. */
async function server(t: TestContext, network: 'unix' | 'tcp' = 'unix') {
  const dir = await mkdtemp(join(tmpdir(), 'remote-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'socket');
  let received = '';
  let isStalled = false;
  let port = 0;
  const sockets = new Set<Socket>();
  const make = () =>
    createServer((socket) => {
      sockets.add(socket);
      socket
        .setEncoding('latin1')
        .on('data', (text: string) => (received += text))
        .on('error', () => undefined)
        .once('close', () => sockets.delete(socket));
      if (isStalled) socket.pause();
    });
  let listening = make();
  const listen = async (): Promise<void> => {
    listening = network === 'unix' ? make().listen(path) : make().listen(port, '127.0.0.1');
    await once(listening, 'listening');
    if (network === 'tcp') port = (listening.address() as AddressInfo).port;
  };
  const leave = async (): Promise<void> => {
    const closed = once(listening, 'close');
    listening.close();
    for (const socket of sockets) socket.destroy();
    await closed;
    // Until the sender hears of it, TCP takes what nobody will get.
    await sleep(100);
  };
  await listen();
  t.after(() => (listening.listening ? leave() : undefined));
  return {
    address: () => (network === 'unix' ? `unix://${path}` : `tcp://127.0.0.1:${port}`),
    numbers: () => [...received.matchAll(/ (\d{8}) x+\n/g)].map(([, text]) => Number(text)),
    stall: () => (isStalled = true),
    resume() {
      isStalled = false;
      for (const socket of sockets) socket.resume();
    },
    listen,
    leave,
  };
}

async function until(what: string, condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 20_000; !condition(); await sleep(10))
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
}

/** Prints until the log asks for a pause or `limit` lines are out; returns how many. */
function printUntilFull(log: ContainerLog, limit: number): number {
  let printed = 0;
  while (printed < limit) {
    const isReady = log.write('stdout', chunkOf(printed, 500));
    printed += 500;
    if (!isReady) break;
  }
  return printed;
}

test('a server that stalls makes the container wait, and gets every line when it goes on', async (t) => {
  const remote = await server(t);
  remote.stall();
  const { open } = await logFixture(t, 'syslog');
  const log = await open({ options: { 'syslog-address': remote.address() } });
  let printed = 0;
  let waits = 0;
  while (waits < 3 && printed < 500_000) {
    const isReady = log.write('stdout', chunkOf(printed, 500));
    printed += 500;
    if (isReady) {
      if (printed % 5000 === 0) await sleep(1);
      continue;
    }
    waits++;
    const drained = new Promise<string>((resolve) => log.onceDrained(() => resolve('drained')));
    if (waits > 1) remote.resume();
    // The sockets' buffers may take so much at first that the queue is empty once more.
    if ((await Promise.race([drained, sleep(500, 'waiting')])) === 'waiting') {
      remote.resume();
      await drained;
    }
  }
  assert.ok(waits > 0, 'it never had to wait');
  await log.close();
  await until('every line', () => remote.numbers().length === printed);
  assert.deepEqual(
    remote.numbers(),
    Array.from({ length: printed }, (_, i) => i),
  );
  assert.equal(log.droppedLines, 0);
});

test('in non-blocking mode a stalled server costs lines, which are counted exactly, and bounded memory', async (t) => {
  const remote = await server(t);
  remote.stall();
  const { open, seen } = await logFixture(t, 'syslog');
  const log = await open({
    options: { 'syslog-address': remote.address(), mode: 'non-blocking', 'max-buffer-size': '100k' },
  });
  const printed = printUntilFull(log, 200_000);
  assert.equal(printed, 200_000, 'it had to wait');
  assert.ok(log.droppedLines > 150_000);
  remote.resume();
  await log.close();
  await until('every line that was kept', () => remote.numbers().length === printed - log.droppedLines);
  const numbers = remote.numbers();
  assert.ok(
    numbers.every((number, i) => i === 0 || number > (numbers[i - 1] ?? 0)),
    'the order is lost',
  );
  assert.equal(numbers[0], 0, 'the oldest are kept');
  assert.equal(seen.dropped, log.droppedLines);
});

test(
  'a container that ends does not wait for a stalled server for ever, and its log can be read meanwhile',
  { timeout: 30_000 },
  async (t) => {
    const remote = await server(t);
    remote.stall();
    const { open, driver, container, seen } = await logFixture(t, 'syslog');
    const options = { 'syslog-address': remote.address(), mode: 'non-blocking', 'max-buffer-size': '32m' };
    const log = await open({ options });
    const printed = 100_000;
    for (let i = 0; i < printed; i += 500) {
      log.write('stdout', chunkOf(i, 500));
      if (i % 5000 === 0) await sleep(1);
    }
    const follower = collect(log.read({ ...ALL, follow: true }));
    const closing = log.close();
    assert.equal((await follower).length, printed * LINE_BYTES, 'a follower waits for the remote side');
    await closing;
    assert.ok(log.droppedLines > 0);
    assert.equal(seen.dropped, log.droppedLines);
    const stopped = await collect(driver.read({ ...container, options }, ALL));
    assert.equal(stopped.length, printed * LINE_BYTES);
  },
);

test('a server that restarts loses nothing that was printed meanwhile', async (t) => {
  const remote = await server(t);
  const { open } = await logFixture(t, 'syslog');
  const log = await open({ options: { 'syslog-address': remote.address() } });
  log.write('stdout', chunkOf(0, 10));
  await until('the first lines', () => remote.numbers().length === 10);
  await remote.leave();
  log.write('stdout', chunkOf(10, 10));
  await sleep(300);
  log.write('stdout', chunkOf(20, 10));
  await remote.listen();
  await until('the others', () => remote.numbers().length === 30);
  assert.equal(log.droppedLines, 0);
  await log.close();
});

test('a server that is gone costs lines, and the container no time; it is used again when it is back', async (t) => {
  const remote = await server(t, 'tcp');
  const { open, seen } = await logFixture(t, 'gelf');
  const log = await open({ options: { 'gelf-address': remote.address(), 'gelf-tcp-max-reconnect': '0' } });
  await remote.leave();
  log.write('stdout', chunkOf(0, 5));
  await until('the loss', () => log.droppedLines === 5);
  // While it is down nothing waits.
  for (let i = 0; i < 200; i++) {
    if (!log.write('stdout', chunkOf(i * 500, 500))) await new Promise<void>((resolve) => log.onceDrained(resolve));
  }
  await until('the loss of the rest', () => log.droppedLines === 100_005);
  assert.equal(seen.failures.length, 1, 'an outage is told of once');
  await remote.listen();
  await sleep(1100);
  log.write('stdout', Buffer.from('back\n'));
  await log.close();
  assert.equal(log.droppedLines, 100_005);
  assert.equal(
    (await readAll(await open({ options: { 'gelf-address': remote.address() } }), { tail: 1 })).toString(),
    'back\n',
  );
});

test('while many lines are sent, others get their turn of the event loop', async (t) => {
  const { open } = await logFixture(t, 'gelf');
  const log = await open({
    options: { 'gelf-address': 'udp://127.0.0.1:9', mode: 'non-blocking', 'max-buffer-size': '16m' },
  });
  let turns = 0;
  for (let i = 0; i < 4000; i += 500) log.write('stdout', chunkOf(i, 500));
  let turn = setImmediate(function count() {
    turns++;
    turn = setImmediate(count);
  });
  await log.close();
  clearImmediate(turn);
  assert.ok(turns > 20, `${turns} turns`);
});

test('splunk: no line takes others with it, and a collector may answer without end', async (t) => {
  const bodies: string[] = [];
  const collector = createHttpServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.once('end', () => {
      if (request.method === 'POST') bodies.push(body);
      const more = (): void => {
        while (!response.destroyed && response.write('x'.repeat(16_384)));
      };
      response.on('drain', more);
      more();
    });
  }).listen(0, '127.0.0.1');
  await once(collector, 'listening');
  t.after(() => {
    collector.closeAllConnections();
    collector.close();
  });
  const url = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  const { open, dir, seen } = await logFixture(t, 'splunk');
  const options = { 'splunk-url': url, 'splunk-token': 'x', 'splunk-format': 'json' };
  makeFifo(join(dir, 'pipe'));
  await assert.rejects(
    open({ options: { ...options, 'splunk-capath': join(dir, 'pipe') } }),
    /pipe is not a regular file/,
  );
  const long = await open({ options: { ...options, 'splunk-format': 'inline' } });
  const stringify = t.mock.method(JSON, 'stringify');
  long.write('stdout', Buffer.from(`${'\x01'.repeat(7000)}\n`.repeat(1000)));
  await nextTurn();
  assert.ok(stringify.mock.callCount() < 1000, 'a whole batch is made in one turn of the loop');
  stringify.mock.restore();
  await long.close();
  // A slow machine may not have sent all of those within the time that a close has.
  const { dropped } = seen;
  const log = await open({ options });
  const deep = `${'['.repeat(8000)}${']'.repeat(8000)}`;
  for (const line of ['{"a":12345678901234567890,"a":1e999}', deep, '{"cut'])
    log.write('stdout', Buffer.from(`${line}\n`));
  await log.close();
  assert.equal(seen.dropped, dropped);
  for (const line of ['{"a":12345678901234567890,"a":1e999}', deep, '"{\\"cut"'])
    assert.ok(bodies.join('').includes(`{"event":{"line":${line},"source":"stdout"`), line.slice(0, 40));
});

test('fluentd: a server that acknowledges what it was not sent is asked again on another connection', async (t) => {
  let connections = 0;
  const server = createServer((socket) => {
    const isLiar = ++connections === 1;
    socket.setEncoding('latin1').on('error', () => undefined);
    socket.on('data', (text: string) => {
      const chunk = /\xa5chunk(\xb8.{24})/.exec(text)?.[1] ?? '';
      socket.write(`\x81\xa3ack${isLiar ? '\xa1x' : chunk}`, 'latin1');
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { open } = await logFixture(t, 'fluentd');
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const options = { 'fluentd-address': address, 'fluentd-request-ack': 'true', 'fluentd-retry-wait': '1ms' };
  const log = await open({ options });
  log.write('stdout', Buffer.from('line\n'));
  await until('the second connection', () => connections === 2);
  await log.close();
  assert.equal(log.droppedLines, 0);
});

/** A file system whose server answers nothing, until the process that is its server ends. */
async function deadFileSystem(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'dead-'));
  const script =
    'exec 5<>/dev/fuse; mount -i -t fuse -o fd=5,rootmode=40000,user_id=0,group_id=0 dead "$0"; echo $?; cat';
  const holder = spawn('sh', ['-c', script, dir], { stdio: ['pipe', 'pipe', 'ignore'] });
  // Without an end of its own, it would hold a main thread that waits for it for ever.
  const timeUp = setTimeout(() => holder.stdin.end(), 3_000);
  const [text] = (await once(holder.stdout, 'data')) as [Buffer];
  const end = async (): Promise<void> => {
    clearTimeout(timeUp);
    holder.stdin.end();
    if (holder.exitCode === null) await once(holder, 'exit');
  };
  t.after(async () => {
    await end();
    spawnSync('umount', [dir]);
    await rm(dir, { recursive: true, force: true });
  });
  return { dir, end, isThere: text.toString() === '0\n' };
}

test('paths of clients are looked up beside the main thread', async (t) => {
  const dead = await deadFileSystem(t);
  if (!dead.isThere) return t.skip('no FUSE can be mounted');
  const path = join(dead.dir, 'socket');
  const { open, driver } = await logFixture(t, 'fluentd');
  let settled = 0;
  const looks = [
    driver.checkPlaces('syslog', { 'syslog-address': `unixgram://${path}` }),
    open({ options: { 'fluentd-address': `unix://${path}` } }),
    open({ driver: 'splunk', options: { 'splunk-url': 'https://x', 'splunk-token': 'x', 'splunk-capath': path } }),
  ].map((look) => look.catch((error: unknown) => error).finally(() => settled++));
  await sleep(50);
  assert.equal(settled, 0, 'they were waited for');
  await dead.end();
  for (const outcome of await Promise.all(looks)) assert.match(String(outcome), /ENOTCONN|ECONNABORTED|socket/);
});

test('a pipe is no socket of a log', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'pipe-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'pipe');
  makeFifo(path);
  const { open } = await logFixture(t, 'syslog');
  for (const scheme of ['unix', 'unixgram'])
    await assert.rejects(open({ options: { 'syslog-address': `${scheme}://${path}` } }), /connection refused/);
  await assert.rejects(open({ options: { 'syslog-address': `unix://${dir}/none` } }), /stat .*none: no such file/);
});
