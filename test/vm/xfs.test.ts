/** The size of a container's files with the driver overlay2, which XFS keeps. */
import { mkdir, writeFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { checkLimitedWrites } from '../support/limited-writes.js';
import { docker, importBox, outcomeOf, output, systemctl } from '../support/machine.js';

const CONFIG = '/etc/engine/daemon.json';
const AT = '/mnt/xfs';

before(async () => {
  await mkdir(AT, { recursive: true });
  await mkdir('/etc/engine', { recursive: true });
  await output('mount', '-o', 'loop,pquota', '/srv/xfs.img', AT);
  await writeFile(CONFIG, JSON.stringify({ 'data-root': `${AT}/data`, 'storage-driver': 'overlay2' }));
  await outcomeOf('systemctl', 'reset-failed');
  await systemctl('restart', 'engined.socket');
  await systemctl('restart', 'engined.service');
  await importBox();
});

after(async () => {
  await systemctl('stop', 'engined.socket', 'engined.service');
  await writeFile(CONFIG, '{}');
});

test('a size of 20 MiB ends what a container writes', async () => {
  await checkLimitedWrites(/No space left on device/);
});

test('an image that is larger than the size of a container is no part of it', async () => {
  await docker('run', '--rm', '--network', 'none', '--storage-opt', 'size=1M', 'box', 'true');
});
