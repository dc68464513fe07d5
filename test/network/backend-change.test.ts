/** A run of the daemon with another firewall is not hindered by what a run before it, which was killed, has left. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { askEcho, startEchoServer } from '../support/echo-server.js';
import {
  attachAndCrash,
  detachSandbox,
  driverRules,
  foreignRules,
  networkPlan,
  networksOf,
  type NetworkPlan,
} from '../support/host-networks.js';
import { silentLog } from '../support/silent-log.js';

const CHILD = fileURLToPath(new URL('../support/crashing-networks.js', import.meta.url));
const directory = mkdtempSync(join(tmpdir(), 'backend-change-'));

after(() => rmSync(directory, { recursive: true }));

/** Runs the driver until it is killed, then with `changes`. A container with a port and one that is gone were there. */
async function crashAndChange(
  first: Partial<NetworkPlan>,
  changes: Partial<NetworkPlan>,
  body: (former: NetworkPlan, plan: NetworkPlan, port: number) => Promise<void>,
): Promise<void> {
  const others = (): string[] =>
    foreignRules()
      .split('\n')
      .filter((line) => line.startsWith('-'));
  const before = others();
  const former = networkPlan(directory, { ipv6: true, ...first });
  const plan = { ...former, ...changes };
  const port = (number: number) => ({ protocol: 'tcp', containerPort: number, hostIp: '', hostPort: 0 }) as const;
  const { sandboxes, identities } = await attachAndCrash(CHILD, former, [[port(80)], [port(81)]]);
  const [kept, gone] = sandboxes;
  assert.ok(kept && gone);
  const stop = await startEchoServer(kept.path, [80], []);
  const networks = networksOf(plan, silentLog, { value: identities });
  try {
    assert.notDeepEqual(driverRules(former), []);
    await networks.start();
    await networks.adopt(kept.id, kept.endpoint, kept.ports);
    await networks.settle();
    await body(former, plan, kept.ports[0]?.hostPort ?? 0);
    for (const family of [4, 6] as const) {
      const rules = driverRules(plan, family).join('\n');
      assert.ok(rules.includes(`dport ${kept.ports[0]?.hostPort} `));
      assert.ok(!rules.includes(`dport ${gone.ports[0]?.hostPort} `));
    }
  } finally {
    await stop();
    for (const sandbox of sandboxes) await detachSandbox(networks, sandbox);
    await networks.stop();
  }
  for (const family of [4, 6] as const) assert.deepEqual(driverRules(plan, family), []);
  assert.deepEqual(others(), before);
}

for (const [one, other] of [
  ['iptables', 'nftables'],
  ['nftables', 'iptables'],
] as const)
  test(`from ${one} to ${other}: ports go on, and no rule of the first one stays`, () =>
    crashAndChange({ firewallBackend: one }, { firewallBackend: other }, async (former, _, port) => {
      for (const family of [4, 6] as const) assert.deepEqual(driverRules(former, family), []);
      const [gateway = ''] = former.bip.split('/');
      assert.match((await askEcho(undefined, [{ protocol: 'tcp', host: gateway, port }]))[0] ?? '', /^80 /);
    }));

for (const firewallBackend of ['iptables', 'nftables'] as const)
  for (const userlandProxy of [true, false])
    test(`${firewallBackend} ${userlandProxy ? 'with' : 'without'} a proxy after a run in the other way`, () =>
      crashAndChange({ firewallBackend, userlandProxy: !userlandProxy }, { userlandProxy }, async (_, plan, port) => {
        const all = driverRules(plan);
        const output = all.slice(all.findIndex((line) => line.includes('chain output')));
        const local =
          firewallBackend === 'nftables'
            ? output.filter((line) => line.includes('jump ports'))
            : all.filter((line) => line.startsWith('-A OUTPUT '));
        assert.equal(local.length, 1);
        assert.equal(
          local.some((line) => line.includes('127.0.0.0/8')),
          userlandProxy,
          local.join('\n'),
        );
        assert.equal(
          driverRules(plan).some((line) => /ENGINE-HOST|chain input/.test(line)),
          !userlandProxy,
        );
        assert.match((await askEcho(undefined, [{ protocol: 'tcp', host: '127.0.0.1', port }]))[0] ?? '', /^80 /);
      }));
