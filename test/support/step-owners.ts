/** Files of a RUN where users are remapped. */
import assert from 'node:assert/strict';
import { outputOf } from './build-output.js';
import type { Buildx } from './buildx.js';
import { IMAGE } from './users-image.js';

/** Builds with each kind of mount. What a step is given belongs to its root, and what it makes to whom it says. */
export async function assertStepOwners(buildx: Buildx): Promise<void> {
  buildx.write('ctx/file', 'of the context');
  buildx.write('secret', 'hush');
  const mounts =
    '--mount=target=/c --mount=target=/w,rw --mount=type=secret,id=s --mount=type=secret,id=s,env=S ' +
    `--mount=type=cache,target=/k,uid=7 --mount=from=${IMAGE},source=/content,target=/i ` +
    `--mount=from=${IMAGE},source=/content,target=/iw,rw`;
  buildx.write(
    'ctx/Dockerfile',
    `FROM ${IMAGE} AS made\nRUN ${mounts} stat -c "%n %a %u:%g" /c /c/file /w/file /k /run/secrets/s /i/own /iw/own;` +
      'echo x > /w/file; echo x >/iw/own; touch /k/x /iw/new /made; chown 1500:7 /made; echo ${#S}; ' +
      'ls /sys/class/net\n' +
      'RUN --network=none --mount=type=cache,target=/k,uid=7 stat -c %u:%g /made /content/own /k/x; ' +
      'ls /sys/class/net\n' +
      `FROM ${IMAGE}\nCOPY --from=made /made /copied\nCOPY --chown=3:4 file /given\n` +
      'RUN stat -c %u:%g /copied /given\n',
  );
  const built = await buildx.ok(['build', '--secret', 'id=s,src=../secret', '--load', '-t', 'test/steps:1', '.'], {
    in: 'ctx',
  });
  assert.deepEqual(outputOf(built), [
    '/c 755 0:0',
    '/c/file 644 0:0',
    '/w/file 644 0:0',
    '/k 755 7:0',
    '/run/secrets/s 400 0:0',
    '/i/own 644 1500:50',
    '/iw/own 644 1500:50',
    '4',
    'eth0',
    'lo',
    '1500:7',
    '1500:50',
    '0:0',
    'lo',
    '1500:7',
    '3:4',
  ]);
}
