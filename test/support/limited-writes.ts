/** A container in the virtual machine whose size is limited: it writes until the limit ends that. */
import assert from 'node:assert/strict';
import { docker, outcomeOf, output, property, systemctl, waitLong } from './machine.js';

const MIB = 1 << 20;
const LIMIT_MIB = 20;
/** File systems need some of it for themselves. */
const LEAST_BYTES = 17 * MIB;
/**
 * The bytes are such that no file system makes smaller. Some file systems free what was removed a while later, so the
 * script waits for that. The last line tells how many were written.
 */
const WRITE = [
  `rm -f /big; until [ "$(df -Pk / | awk 'END { print $4 }')" -ge ${LEAST_BYTES / 1024} ]; do sync; sleep 1; done`,
  'dd if=/dev/urandom of=/big bs=64k count=$0 2>&1; sync; wc -c </big',
].join('; ');

/** Proves that 20 MiB are the end, and are it still after the daemon was killed; half of them fit. */
export async function checkLimitedWrites(said: RegExp): Promise<void> {
  const make = ['run', '--network', 'none', '--storage-opt', `size=${LIMIT_MIB}M`];
  const half = await docker(...make, '--rm', 'box', 'sh', '-c', WRITE, String((LIMIT_MIB / 2) * 16));
  assert.equal(Number(half.split('\n').at(-1)), (LIMIT_MIB / 2) * MIB);
  await checkEnd(said, ...make, '--name', 'full', 'box', 'sh', '-c', WRITE, String(LIMIT_MIB * 2 * 16));
  // On a quick machine all this is within the minute in which systemd counts starts.
  await systemctl('reset-failed', 'engined.service');
  const pid = await property('engined.service', 'MainPID');
  await output('kill', '-9', pid);
  await waitLong('another daemon', async () => !['0', pid].includes(await property('engined.service', 'MainPID')));
  await checkEnd(said, 'start', '-a', 'full');
  await systemctl('reset-failed', 'engined.service');
  await systemctl('restart', 'engined.service');
  await checkEnd(said, 'start', '-a', 'full');
  await docker('rm', 'full');
}

async function checkEnd(said: RegExp, ...args: readonly string[]): Promise<void> {
  const { stdout, stderr } = await outcomeOf('docker', ...args);
  const bytes = Number(stdout.trim().split('\n').at(-1));
  assert.ok(bytes >= LEAST_BYTES && bytes <= LIMIT_MIB * MIB, stdout + stderr);
  assert.match(stdout, said);
}
