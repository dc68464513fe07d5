import assert from 'node:assert/strict';
import test from 'node:test';
import { fromBinary } from '@bufbuild/protobuf';
import { isEngineError } from '../errors/engine-error.js';
import { packMessage } from './any.js';
import { exitStatus } from './exits/exit-status.js';
import { decodeMetrics, hadOomKill } from './metrics.js';
import { MetricsSchema as V1Schema } from './proto/gen/cgroups_v1_pb.js';
import { MetricsSchema as V2Schema } from './proto/gen/cgroups_v2_pb.js';
import { OptionsSchema as RuncOptionsSchema } from './proto/gen/runc_options_pb.js';
import { OptionsSchema as ShimOptionsSchema } from './proto/gen/runtime_options_pb.js';
import { packRuntimeOptions } from './runtime-options.js';

test('statistics of both cgroup versions are decoded, others refused', () => {
  const v2 = packMessage(V2Schema, {
    memory: { usage: 5n },
    cpu: { usageUsec: 7n },
    io: { usage: [{ major: 8n, rbytes: 1n }] },
  });
  assert.equal(v2.typeUrl, 'io.containerd.cgroups.v2.Metrics');
  const decoded = decodeMetrics(v2);
  assert.ok(decoded.$typeName === 'io.containerd.cgroups.v2.Metrics');
  assert.deepEqual([decoded.memory?.usage, decoded.cpu?.usageUsec, decoded.io?.usage[0]?.rbytes], [5n, 7n, 1n]);
  assert.equal(decodeMetrics(packMessage(V1Schema, {})).$typeName, 'io.containerd.cgroups.v1.Metrics');
  assert.throws(
    () => decodeMetrics({ ...v2, typeUrl: 'other' }),
    (error) => isEngineError(error, 'internal'),
  );
});

test('a kill for want of memory is seen in the counters of both cgroup versions', () => {
  for (const [packed, expected] of [
    [packMessage(V1Schema, {}), false],
    [packMessage(V1Schema, { memoryOomControl: { oomKill: 1n } }), true],
    [packMessage(V2Schema, { memoryEvents: { oom: 3n } }), false],
    [packMessage(V2Schema, { memoryEvents: { oomKill: 1n } }), true],
  ] as const) {
    assert.equal(hadOomKill(decodeMetrics(packed)), expected);
  }
});

test('the runc shim gets its binary, root and cgroup driver, another shim its own options', () => {
  const runc = packRuntimeOptions(
    { type: 'io.containerd.runc.v2', binaryName: '/usr/bin/crun', systemdCgroup: true },
    '/root',
  );
  assert.equal(runc?.typeUrl, 'containerd.runc.v1.Options');
  const { binaryName, root, systemdCgroup } = fromBinary(RuncOptionsSchema, runc.value);
  assert.deepEqual([binaryName, root, systemdCgroup], ['/usr/bin/crun', '/root', true]);

  const more = {
    root: '/own',
    noNewKeyring: true,
    shimCgroup: '/shims',
    ioUid: 5,
    ioGid: 6,
    criuImagePath: '/i',
    criuWorkPath: '/w',
  };
  const whole = packRuntimeOptions({ type: 'io.containerd.runc.v2', runc: more }, '/root');
  const { $typeName: _, ...said } = fromBinary(RuncOptionsSchema, whole?.value ?? new Uint8Array());
  assert.deepEqual(said, {
    ...more,
    binaryName: '',
    noPivotRoot: false,
    systemdCgroup: false,
    taskApiAddress: '',
    taskApiVersion: 0,
  });

  assert.equal(packRuntimeOptions({ type: 'io.containerd.kata.v2' }, '/root'), undefined);
  const others = { Path: 'C:\\"x"', Depth: 3, Fast: true, List: ['a', 1.5], Deep: { 'a b': { c: 'é' } } };
  const options = { TypeUrl: 'a.b', ConfigPath: '/c', ...others };
  const kata = packRuntimeOptions({ type: 'io.containerd.kata.v2', options }, '/root');
  assert.equal(kata?.typeUrl, 'runtimeoptions.v1.Options');
  const { typeUrl, configPath, configBody } = fromBinary(ShimOptionsSchema, kata.value);
  assert.deepEqual([typeUrl, configPath], ['a.b', '/c']);
  assert.equal(
    Buffer.from(configBody).toString(),
    '"Path" = "C:\\\\\\"x\\""\n"Depth" = 3\n"Fast" = true\n"List" = ["a", 1.5]\n"Deep" = { "a b" = { "c" = "é" } }\n',
  );
  const wrong = { type: 'x', options: { ConfigPath: 5 } };
  assert.throws(
    () => packRuntimeOptions(wrong, '/root'),
    (error) => isEngineError(error, 'invalid') && error.message.includes('ConfigPath'),
  );
});

test('a time that Go left unset is now', () => {
  const unset = exitStatus(3, { $typeName: 'google.protobuf.Timestamp', seconds: -62_135_596_800n, nanos: 0 });
  assert.ok(Math.abs(unset.exitedAt.getTime() - Date.now()) < 1_000);
  const set = exitStatus(3, { $typeName: 'google.protobuf.Timestamp', seconds: 5n, nanos: 7_900_000 });
  assert.deepEqual(set, { exitCode: 3, exitedAt: new Date(5_007) });
});
