/**
 * The images that critest pulls, made of the machine's busybox and pushed to a local registry under their names. What
 * the tests look at is there: a server that is called nginx and writes its process ID, users and groups, and a program
 * that shows whether a set-user-ID bit has an effect.
 */
import { readFileSync } from 'node:fs';
import {
  buildImage,
  buildLayer,
  busyboxEntries,
  pushImage,
  type BuiltLayer,
  type LayerEntry,
} from '../support/image-builder.js';

/** The image of pod sandboxes: it sleeps. */
export const PAUSE = 'registry.k8s.io/pause:3.10';

const E2E = 'e2e-test-images';
const OWN = 'k8s-staging-cri-tools';
const HTTP_PORT = 80;
/** The tests of the host's network expect the server on this port. */
const HOST_NETWORK_PORT = 12_003;

/** The set-user-ID shell and the libraries that it is linked with, at the paths that it names. */
const SHELL = '/bin/dash';
const LIBRARIES = ['/lib64/ld-linux-x86-64.so.2', '/lib/x86_64-linux-gnu/libc.so.6'];

/** The tests call these, and Debian's busybox may lack them. */
const APPLETS = { pgrep: 'exec pidof "$1"', ipcs: 'exec cat /proc/sysvipc/shm' };

/** As in the published image, the applets are hard links: one of them can be masked without the others. */
const base = buildLayer([
  ...busyboxEntries().map((entry) =>
    entry.type === 'symlink' ? { ...entry, type: 'link' as const, target: 'bin/busybox' } : entry,
  ),
  ...Object.entries(APPLETS).map(([name, line]) => ({
    path: `usr/bin/${name}`,
    content: `#!/bin/sh\n${line}\n`,
    mode: 0o755,
  })),
]);

/** A layer for one file, with the directories above it. */
function fileLayer(path: string, content: Buffer | string, mode = 0o644): BuiltLayer {
  return buildLayer([...parents(path), { path, content, mode }]);
}

function parents(path: string): LayerEntry[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, at) => ({ path: `${parts.slice(0, at + 1).join('/')}/`, type: 'directory' }));
}

/** The kernel calls a script by its file's name, so that `pidof nginx` finds it. */
function server(port: number): { readonly layer: BuiltLayer; readonly command: readonly string[] } {
  const script = [
    '#!/bin/sh',
    'echo $$ > /var/run/nginx.pid',
    'echo httpd serves',
    `httpd -p ${port} -h /www`,
    "trap 'exit 0' TERM INT QUIT",
    'while :; do sleep 1000 & wait; done',
  ].join('\n');
  const entries: LayerEntry[] = [
    ...parents('var/run/'),
    { path: 'www/', type: 'directory' },
    { path: 'www/index.html', content: 'served\n' },
    { path: 'usr/sbin/nginx', content: `${script}\n`, mode: 0o755 },
  ];
  return { layer: buildLayer(entries), command: ['/usr/sbin/nginx', 'master process'] };
}

/** Pushes all of them to the registry. */
export async function pushCritestImages(registryUrl: string): Promise<void> {
  const push = async (name: string, layers: readonly BuiltLayer[], config: Readonly<Record<string, unknown>> = {}) => {
    const [repository = '', tag = 'latest'] = name.split(':');
    await pushImage(registryUrl, repository, tag, buildImage({ layers: [base, ...layers], config }));
  };
  await push(PAUSE.slice(PAUSE.indexOf('/') + 1), [], {
    Cmd: ['sh', '-c', "trap 'exit 0' TERM INT; while :; do sleep 1000 & wait; done"],
  });
  await push(`${E2E}/busybox:1.29-2`, []);
  const web = server(HTTP_PORT);
  await push(`${E2E}/nginx:1.14-2`, [web.layer], { Cmd: web.command });
  await push(`${E2E}/httpd:2.4.39-4`, [web.layer], { Cmd: web.command });
  const hostWeb = server(HOST_NETWORK_PORT);
  await push(`${OWN}/hostnet-nginx-amd64`, [hostWeb.layer], { Cmd: hostWeb.command });

  const users = { uid: '1002', username: 'www-data', 'uid-group': '1003:1004', 'username-group': 'www-data:1004' };
  const known = fileLayer('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n');
  for (const [name, User] of Object.entries(users)) await push(`${OWN}/test-image-user-${name}`, [known], { User });
  const group = [
    fileLayer('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/home:/bin/sh\n'),
    fileLayer('etc/group', 'root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n'),
  ];
  await push(`${OWN}/test-image-predefined-group`, group, { User: '1000' });

  const plain = ['test-image-1', 'test-image-2', 'test-image-3', 'test-image-latest', 'test-image-digest'];
  const tagged = ['test-image-tag:test', 'test-image-tag:all'];
  for (const name of [...plain, ...tagged]) await push(`${OWN}/${name}`, [fileLayer('name', name)]);
  for (const tag of [1, 2, 3]) await push(`${OWN}/test-image-tags:${tag}`, [fileLayer('name', 'same')]);
  await push(`${E2E}/nonewprivs:1.3`, privilegeLayers(), { Cmd: ['/shell', '-p', '-c', TELL_USER] });
}

/** The second number of this line is the effective user. */
const TELL_USER =
  'while read name real effective rest; do if [ $name = Uid: ]; then echo "Effective uid: $effective"; fi; ' +
  'done < /proc/self/status';

/** The applets of busybox drop what such a bit gives them; with `-p` the shell of Debian keeps it. */
function privilegeLayers(): BuiltLayer[] {
  return [
    ...LIBRARIES.map((path) => fileLayer(path.slice(1), readFileSync(path), 0o755)),
    fileLayer('shell', readFileSync(SHELL), 0o4755),
  ];
}
