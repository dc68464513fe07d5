/** RUN where containers have users of their own: what a step is given belongs to their root. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { outputOf } from '../support/build-output.js';
import { Buildx } from '../support/buildx.js';
import { buildxPlugins } from '../support/dockerd.js';
import { RemappedEngine } from '../support/remapped-engine.js';
import { IMAGE } from '../support/users-image.js';

const remapped = new RemappedEngine();
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

test('files of mounts have owners of the container, and networks are its own', { skip }, async () => {
  const buildx = new Buildx(join(remapped.temp, 'work'), remapped.engine.host);
  buildx.write('ctx/file', 'of the context');
  buildx.write('secret', 'hush');
  const mounts =
    '--mount=target=/c --mount=target=/w,rw --mount=type=secret,id=s --mount=type=secret,id=s,env=S ' +
    '--mount=type=cache,target=/k,uid=7';
  buildx.write(
    'ctx/Dockerfile',
    `FROM ${IMAGE}\nRUN ${mounts} stat -c "%n %a %u:%g" /c /c/file /w/file /k /run/secrets/s; echo x > /w/file; ` +
      'touch /k/x /made; echo ${#S}; ls /sys/class/net\nRUN --network=none stat -c %u:%g /made; ls /sys/class/net\n',
  );
  const built = await buildx.ok(['build', '--secret', 'id=s,src=../secret', '.'], { in: 'ctx' });
  assert.deepEqual(outputOf(built), [
    '/c 755 0:0',
    '/c/file 644 0:0',
    '/w/file 644 0:0',
    '/k 755 7:0',
    '/run/secrets/s 400 0:0',
    '4',
    'eth0',
    'lo',
    '0:0',
    'lo',
  ]);
});
