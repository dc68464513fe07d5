/** Configurations from files of a private directory, which is removed when the process ends. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isEngineError } from '../../src/errors/engine-error.js';
import type { Host } from '../../src/config/host.js';
import { loadConfig } from '../../src/config/load.js';
import type { LoadedConfig } from '../../src/config/settings.js';

const dir = mkdtempSync(join(tmpdir(), 'engined-config-'));
let count = 0;
// Several test files in one process may share this module, so it must not end with the first of them.
process.once('exit', () => rmSync(dir, { recursive: true, force: true }));

export function file(content: unknown): string {
  const path = join(dir, `${count++}.json`);
  writeFileSync(path, typeof content === 'string' || Buffer.isBuffer(content) ? content : JSON.stringify(content));
  return path;
}

/** On this host every option can be used. */
export const HOST: Host = {
  systemd: true,
  cgroupVersion: 1,
  cpuRealtime: true,
  isInitialUserNamespace: false,
  userManager: false,
  lookUp: {
    group: () => undefined,
    groupLater: () => Promise.resolve(),
    tlsFiles: () => undefined,
    storageDriver: () => undefined,
    storageOpts: () => undefined,
  },
};

/** In the session of a user, too. */
const SESSION = { XDG_RUNTIME_DIR: '/run/user/1000' };

export const load = (
  content: unknown,
  argv: readonly string[] = [],
  environment: Record<string, string> = SESSION,
  host: Host = HOST,
): LoadedConfig => loadConfig(['--config-file', file(content), ...argv], environment, host);
/** The message that a configuration is refused with. */
export const refused = (call: () => unknown): string => {
  try {
    call();
  } catch (error) {
    assert.ok(isEngineError(error, 'invalid'), String(error));
    return error.message;
  }
  return assert.fail('was accepted');
};
