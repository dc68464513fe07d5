/** A policy of iptables that the rules of nftables cannot lift: containers suffer, and the log says what helps. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt } from '../support/engine-commands.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { openOutside } from '../support/outside.js';

const HERE = '10.216.0.1';
const THERE = '10.216.0.2';

const cleanup = new Cleanup();
after(() => cleanup.run());

test('the log names the command that lets containers reach others, and no command when all is well', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'forward-policy-'));
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  const outside = openOutside(directory, { here: [`${HERE}/24`], there: [`${THERE}/24`] });
  cleanup.add(async () => outside.remove());
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
  execFileSync('iptables', ['-w', '-P', 'FORWARD', 'DROP']);
  cleanup.add(async () => execFileSync('iptables', ['-w', '-P', 'FORWARD', 'ACCEPT']));
  const { engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--firewall-backend=nftables'] }));
  const ping = async (): Promise<number> =>
    (await attempt(engine, ['run', '--rm', image, 'ping', '-c', '1', '-W', '2', THERE])).status;
  assert.notEqual(await ping(), 0);
  const [, remedy = ''] = / remedy="([^"]*)"/.exec(engine.log) ?? [];
  assert.equal(remedy, 'iptables -P FORWARD ACCEPT', engine.log);
  const [program = '', ...args] = remedy.split(' ');
  execFileSync(program, args);
  assert.equal(await ping(), 0);
  await engine.stop();
  const { length } = engine.log;
  await engine.start();
  assert.doesNotMatch(engine.log.slice(length), /policy of iptables/);
});
