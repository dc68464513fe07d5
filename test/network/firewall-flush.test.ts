/**
 * Somebody flushes or replaces the host's rules while published ports are used: with both back ends of iptables, and
 * with nftables, they work again.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { startEchoServer } from '../support/echo-server.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { endProcess, startInside } from '../support/host-networks.js';
import { openOutside, type Outside } from '../support/outside.js';
import { waitFor } from '../support/wait.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const HOST = '10.217.9.1';
const OUTSIDE = '10.217.9.2';
const PORT = 8080;
/** Two seconds are promised; a busy machine may be late with everything. */
const PATIENCE_MS = 15_000;
/** File that asks for a second flush. */
const AGAIN = 'again';
const COMMANDS = ['iptables', 'iptables-save', 'iptables-restore', 'ip6tables', 'ip6tables-save', 'ip6tables-restore'];
const FLUSH = 'iptables -w -F; iptables -w -t nat -F';
const OPERATORS_RULES =
  '*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:OPERATOR - [0:0]\n' +
  '-A FORWARD -j OPERATOR\n-A OPERATOR -s 192.0.2.1/32 -j DROP\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n' +
  ':INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n';

const directory = mkdtempSync(join(tmpdir(), 'flush-'));
const cleanup = new Cleanup();
let outside: Outside;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  outside = openOutside(directory, { here: [`${HOST}/24`], there: [`${OUTSIDE}/24`] });
  cleanup.add(async () => outside.remove());
});
after(() => cleanup.run());

const OPERATORS_TABLE =
  'table inet operator {\\n chain forward {\\n type filter hook forward priority -10;\\n ' +
  'ip saddr 192.0.2.1 drop\\n }\\n}\\n';

/** A directory in which the commands are those of one back end, as Debian's alternatives would select it. */
function commandsOf(name: string, programs: 'nft' | 'legacy'): string {
  const path = join(directory, name);
  mkdirSync(path);
  const program = `/usr/sbin/xtables-${programs}-multi`;
  for (const command of COMMANDS) if (command !== 'iptables-restore') symlinkSync(program, join(path, command));
  // Where it is asked to, somebody flushes again as soon as the rules are back.
  const again = `${program} iptables -w -F; ${program} iptables -w -t nat -F`;
  const flush = `if rm ${join(path, AGAIN)} 2>/dev/null; then ${again}; fi`;
  writeFileSync(
    join(path, 'iptables-restore'),
    `#!/bin/sh\n${program} iptables-restore "$@"\nstatus=$?\n${flush}\nexit $status\n`,
    { mode: 0o755 },
  );
  return path;
}

/** A client on another machine that connects again and again. */
function startTraffic(): { readonly answeredSince: (at: number) => boolean; readonly stop: () => Promise<void> } {
  const program = `
    const ask = () => {
      const at = Date.now();
      const socket = require('node:net').connect(${PORT}, '${HOST}').on('error', () => 0)
      .on('data', (data) => String(data).includes('${OUTSIDE}') && console.log(at));
      setTimeout(() => socket.destroy(), 400);
    };
    setInterval(ask, 25);`;
  const child = startInside(outside.path, process.execPath, '-e', program);
  let latest = 0;
  child.stdout.on('data', (data) => (latest = Math.max(latest, ...String(data).trim().split('\n').map(Number))));
  return { answeredSince: (at) => latest > at, stop: () => endProcess(child) };
}

/** Commands of a shell, each by its name. */
function attacks(backEnd: 'nft' | 'legacy' | 'nftables', commands: string): Readonly<Record<string, string>> {
  const flushAll = { 'nft flush ruleset': 'nft flush ruleset' };
  if (backEnd === 'nftables')
    return {
      ...flushAll,
      'tables that are deleted':
        'nft list tables | grep engine-bridges | while read -r table; do nft delete $table; done',
      // The service of nftables does this when it is reloaded.
      'restored rules of the operator': `printf 'flush ruleset\n${OPERATORS_TABLE}' | nft -f -`,
    };
  return {
    flush: FLUSH,
    'flush, and again while it is made good': `touch ${join(commands, AGAIN)}; ${FLUSH}`,
    // firewalld does this: everything is refused while its rules are absent.
    'reload of firewalld':
      'for c in INPUT FORWARD OUTPUT; do iptables -w -P $c DROP; done; for t in filter nat; ' +
      'do iptables -w -t $t -F; iptables -w -t $t -X; done; iptables -w -N IN_public; ' +
      'iptables -w -A INPUT -j IN_public; for c in INPUT FORWARD OUTPUT; do iptables -w -P $c ACCEPT; ' +
      'done',
    'restored rules of the operator': `printf '${OPERATORS_RULES.replaceAll('\n', '\\n')}' | iptables-restore`,
    ...(backEnd === 'nft' ? flushAll : {}),
  };
}

for (const [backEnd, proxy] of [
  ['nft', false],
  ['legacy', true],
  ['nftables', true],
] as const) {
  const programs = backEnd === 'nftables' ? 'nft' : backEnd;
  const skip = !existsSync(`/usr/sbin/xtables-${programs}-multi`) && 'this back end is not installed';
  test(`${backEnd}, ${proxy ? 'with' : 'without'} the userland proxy`, { skip }, async (context) => {
    const commands = commandsOf(backEnd, programs);
    const run = (line: string): string =>
      execFileSync('sh', ['-ec', line], {
        encoding: 'utf8',
        env: { ...process.env, PATH: `${commands}:${process.env['PATH'] ?? ''}` },
      });
    const rules = (): string =>
      run(backEnd === 'nftables' ? 'nft list ruleset' : 'iptables-save')
        .replaceAll(/^#.*\n/gm, '')
        .replaceAll(/\[\d+:\d+\]/g, '');
    const backendArgs = backEnd === 'nftables' ? ['--firewall-backend=nftables'] : [];
    const engine = await Engine.start(
      await withImage(
        engined({
          args: [`--userland-proxy=${proxy}`, ...backendArgs],
          env: { PATH: `${commands}:${process.env['PATH'] ?? ''}` },
        }),
      ),
    );
    cleanup.add(() => engine.discard());
    const id = await engineOk(engine, ['run', '-d', '-p', `${PORT}:80`, SEEDED_IMAGE, 'sleep', '600']);
    const stop = await startEchoServer(join(engine.dir, 'exec', 'netns', id), [80], []);
    const traffic = startTraffic();
    const answers = (since: number): Promise<unknown> =>
      waitFor('an answer that was translated', () => traffic.answeredSince(since), PATIENCE_MS);
    try {
      await answers(0);
      for (const [name, command] of Object.entries(attacks(backEnd, commands))) {
        run(command);
        const at = Date.now();
        await waitFor('the second flush', () => !existsSync(join(commands, AGAIN)), PATIENCE_MS);
        await answers(name.includes('again') ? Date.now() : at);
        context.diagnostic(`${name}: ports answer again after ${Date.now() - at} ms`);
        if (name.startsWith('restored') && backEnd === 'nftables') assert.match(rules(), /ip saddr 192\.0\.2\.1 drop/);
        else if (name.startsWith('restored')) {
          assert.match(rules(), /:FORWARD DROP/, 'the policy of the operator');
          assert.match(
            rules(),
            /-A FORWARD -j OPERATOR\n[^]*-A OPERATOR -s 192.0.2.1\/32 -j DROP/,
            'rules of the operator',
          );
        }
      }
      await stop();
      await engineOk(engine, ['rm', '-f', id]);
      await engine.close();
      assert.doesNotMatch(rules(), /ENGINE|engine-bridges/);
    } finally {
      await traffic.stop();
      await stop();
      // The other back end wants the same port, and packets pass the rules of both.
      await engine.discard();
      run('iptables -P FORWARD ACCEPT; for t in filter nat; do iptables -t $t -F; iptables -t $t -X; done');
    }
  });
}
