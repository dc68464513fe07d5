import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerConfig, HostConfig, MountRequest } from '../../../ports/container.js';
import { planMounts } from './mount-plan.js';

const plan = (host: Partial<HostConfig>, volumes: string[] = []) =>
  planMounts(
    { Volumes: Object.fromEntries(volumes.map((path) => [path, {}])) } as unknown as ContainerConfig,
    { Binds: null, VolumeDriver: '', ...host } as HostConfig,
    { inherited: [], keepsSubmountsWritable: false, dataRoot: '/var/lib/engine' },
  );

test('binds, named volumes and image volumes', () => {
  const [bind, volume, anonymous] = plan({ Binds: ['/host:/data:ro', 'cache:/cache/'] }, ['/var/lib/x', '/data']);
  assert.deepEqual(bind, {
    Type: 'bind',
    Source: '/host',
    Destination: '/data',
    Mode: 'ro',
    RW: false,
    Propagation: 'rprivate',
  });
  assert.deepEqual(volume, {
    Type: 'volume',
    Name: 'cache',
    Source: '',
    Destination: '/cache',
    Driver: '',
    Mode: 'z',
    RW: true,
    Propagation: '',
  });
  assert.match(anonymous?.Name ?? '', /^[0-9a-f]{64}$/);
  assert.equal(anonymous?.Destination, '/var/lib/x');
});

test('bad mounts are refused by name', () => {
  const mount = (request: Partial<MountRequest>): void => void plan({ Mounts: [request as MountRequest] });
  assert.throws(() => plan({ Binds: ['only'] }), /invalid volume specification: 'only'/);
  assert.throws(() => plan({ Binds: ['/a:/b'], Tmpfs: { '/b': '' } }), /Duplicate mount point: \/b/);
  assert.throws(() => plan({ Binds: ['/a:b'] }), /mount path must be absolute/);
  assert.throws(() => plan({ Binds: ['/a:/'] }), /destination can't be '\/'/);
  assert.throws(() => plan({ Binds: ['/a:/b:bogus'] }), /invalid mode: bogus/);
  assert.throws(() => plan({ Binds: ['../a:/b'] }), /invalid characters for a local volume name/);
  assert.throws(() => plan({ Binds: ['/a:/b', '/c:/b'] }), /Duplicate mount point: \/b/);
  const places = Array.from({ length: 1001 }, (_, at) => `/v/${at}`);
  assert.throws(() => plan({}, places), /a container or its image has more than 1000 volumes/);
  assert.equal(plan({}, places.slice(1)).length, 1000);
  assert.throws(() => mount({ Type: 'bind', Source: 'rel', Target: '/x' }), /mount path must be absolute/);
  assert.throws(() => mount({ Type: 'bind', Source: '', Target: '/x' }), /field Source must not be empty/);
  assert.throws(() => mount({ Type: 'bind', Source: '/a', Target: '' }), /field Target must not be empty/);
  assert.throws(() => mount({ Type: 'tmpfs', Source: '/a', Target: '/x' }), /field Source must not be specified/);
  assert.throws(
    () => mount({ Type: 'tmpfs', Target: '/x', TmpfsOptions: { Options: [['suid']] } }),
    /invalid mount config for type "tmpfs": invalid option: suid/,
  );
  assert.throws(
    () => mount({ Type: 'tmpfs', Target: '/x', TmpfsOptions: { Options: [['exec', 'a', 'b']] } }),
    /invalid option array length/,
  );
  assert.throws(
    () => mount({ Type: 'image', Target: '/x' }),
    /invalid mount config for type "image": field Source must not be empty/,
  );
  assert.throws(
    () => mount({ Type: 'image', Source: 'a', Target: '/x', ImageOptions: { Subpath: '../b' } }),
    /subpath must be a relative path/,
  );
  assert.throws(
    () => mount({ Type: 'volume', Target: '/x', VolumeOptions: { Subpath: 'b' } }),
    /must not set Subpath when using anonymous volumes/,
  );
  assert.throws(
    () => mount({ Type: 'bind', Source: '/a', Target: '/x', BindOptions: { ReadOnlyForceRecursive: true } }),
    /mount options conflict: !ReadOnly && BindOptions.ReadOnlyForceRecursive/,
  );
  assert.throws(
    () =>
      mount({
        Type: 'bind',
        Source: '/a',
        Target: '/x',
        ReadOnly: true,
        BindOptions: { ReadOnlyForceRecursive: true, ReadOnlyNonRecursive: true },
      }),
    /mount options conflict: BindOptions.ReadOnlyNonRecursive && BindOptions.ReadOnlyForceRecursive/,
  );
});

test('a bind of the data root, of what is in it or of what it is in gives mounts back that end on the host', () => {
  const given = (bind: string): string | undefined => plan({ Binds: [bind] })[0]?.Propagation;
  for (const source of ['/', '/var', '/var/lib/engine', '/var/lib/engine/overlay2'])
    assert.equal(given(`${source}:/x`), 'rslave', source);
  for (const source of ['/var/lib/engine2', '/var/lib/eng']) assert.equal(given(`${source}:/x`), 'rprivate', source);
  assert.equal(given('/var:/x:rshared'), 'rshared');
  assert.throws(() => plan({ Binds: ['/var:/x:rprivate'] }), /must use either propagation mode "rslave" or "rshared"/);
  const request = { Type: 'bind', Source: '/var', Target: '/x' } as const;
  assert.equal(plan({ Mounts: [request] })[0]?.Propagation, 'rslave');
  assert.throws(
    () => plan({ Mounts: [{ ...request, BindOptions: { Propagation: 'slave' } }] }),
    /daemon root: "\/var\/lib\/engine", bind mount source: "\/var", propagation: "slave"/,
  );
});
