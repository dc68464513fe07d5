/** A host that has nft and no iptables. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';

test('firewall-backend: where iptables is not installed, nftables is used without being asked for', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'programs-'));
  for (const path of (process.env['PATH'] ?? '').split(':').filter((each) => existsSync(each)))
    for (const program of readdirSync(path))
      if (!/^(ip6?|x)tables/.test(program) && !existsSync(join(directory, program)))
        symlinkSync(join(path, program), join(directory, program));
  const engine = await Engine.start(engined({ env: { PATH: directory } }));
  try {
    const info = await callJson<{ readonly FirewallBackend: object }>(engine.socketPath, 'GET', '/v1.49/info');
    assert.deepEqual(info.FirewallBackend, { Driver: 'nftables' });
    assert.match(execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' }), /table ip engine-bridges-/);
    await engine.close();
  } finally {
    await engine.discard();
    rmSync(directory, { recursive: true });
  }
});
