/**
 * A port that is published on 127.0.0.1 is for this host alone: neither a container nor a neighbour of the host gets to
 * it by sending packets for 127.0.0.1 to the host, which other systems never do.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { runInside } from '../support/host-networks.js';
import { openOutside, type Outside } from '../support/outside.js';
import { waitFor } from '../support/wait.js';

const HOST = '10.216.9.1';
const directory = mkdtempSync(join(tmpdir(), 'loopback-'));
const cleanup = new Cleanup();
let outside: Outside;

/** Sends what is for 127.0.0.1 to a router: the own loopback no longer has the address. */
const sendTo = (router: string, source: string): string =>
  'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet; ip addr del 127.0.0.1/8 dev lo; ' +
  `ip route replace 127.0.0.1 via ${router} src ${source}`;
/** Says what a web server answers, or nothing. */
const FETCH = String.raw`printf 'GET /me HTTP/1.0\r\n\r\n' | nc -w 5`;

before(() => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  outside = openOutside(directory, { here: [`${HOST}/24`], there: ['10.216.9.2/24'] });
  cleanup.add(async () => outside.remove());
  runInside(outside.path, 'sh', '-c', `ip link set lo up; ${sendTo(HOST, '10.216.9.2')}`);
});
after(() => cleanup.run());

for (const args of [[], ['--userland-proxy=false'], ['--userland-proxy=false', '--firewall-backend=nftables']])
  test(`engined ${args.join(' ')}`, async () => {
    const own = new Cleanup();
    try {
      const { engine, image } = await startEngineWithImage(own, engined({ args: ['--ip-forward-no-drop', ...args] }));
      const serve = 'echo hello > /tmp/me; exec httpd -f -p 80 -h /tmp';
      const ports = ['-p', '8080:80', '-p', '127.0.0.1:8090:80'];
      await engineOk(engine, ['run', '-d', '--name', 'served', ...ports, image, 'sh', '-c', serve]);
      const fetch = (...where: readonly string[]): string[] => ['sh', '-c', `${FETCH} ${where.join(' ')} || true`];
      const here = (...where: readonly string[]): string =>
        execFileSync('busybox', fetch(...where), { encoding: 'utf8' });
      const there = (...where: readonly string[]): string => runInside(outside.path, 'busybox', ...fetch(...where));
      await waitFor('the server', () => here('127.0.0.1', '8090').includes('hello'));
      assert.match(there(HOST, '8080'), /hello/, 'the neighbour reaches a port of the host');
      assert.doesNotMatch(there('127.0.0.1', '8090'), /hello/, 'the neighbour');
      const gateway = await engineOk(engine, [
        'network',
        'inspect',
        '-f',
        '{{(index .IPAM.Config 0).Gateway}}',
        'bridge',
      ]);
      const attack = `me=$(hostname -i); ${sendTo(gateway, '$me')}; ${FETCH}`;
      const contained = async (where: string): Promise<string> =>
        (await attempt(engine, ['run', '--rm', '--privileged', image, 'sh', '-c', `${attack} ${where}`])).stdout;
      assert.match(await contained(`${gateway} 8080`), /hello/, 'a container reaches a port of the host');
      assert.doesNotMatch(await contained('127.0.0.1 8090'), /hello/, 'a container');
      await engineOk(engine, ['rm', '-f', 'served']);
    } finally {
      await own.run();
    }
  });
