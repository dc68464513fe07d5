import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLog } from '../../../../test/support/silent-log.js';
import { StepRooms } from './step-room.js';

type Deps = ConstructorParameters<typeof StepRooms>[0];
type Request = ConstructorParameters<typeof StepRooms>[1];

test('the room of the next RUN is made ahead, at most one, and given back when nobody takes it', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'engined-rooms-'));
  const told: string[] = [];
  let isWanted = false;
  let fails = false;
  const network = {
    hostDns: async () => ({ nameservers: ['10.0.0.1'], search: [], options: [] }),
    createSandbox: async (id: string) => {
      told.push(fails ? 'fails' : 'made');
      if (fails) throw new Error('no more namespaces');
      return join('/run/netns', id);
    },
    removeSandbox: async () => void told.push('removed'),
  };
  const deps = {
    log: silentLog,
    network,
    stdio: { create: async () => ({ close: async () => void told.push('closed') }) },
    ioRoot: join(dir, 'io'),
    placesRoot: join(dir, 'places'),
    stepDefaults: () => ({ dns: [], dnsSearch: [], dnsOptions: [], hostGatewayIps: [] }),
    userMaps: undefined,
  } as unknown as Deps;
  const request = { run: { hostname: '', extraHosts: [] }, buildArgs: new Map() } as unknown as Request;
  try {
    const rooms = new StepRooms(deps, request, () => isWanted);
    rooms.prepare('default');
    assert.deepEqual(told, []);
    isWanted = true;
    rooms.prepare('default');
    rooms.prepare('default');
    const room = await rooms.take('default');
    assert.deepEqual(told.splice(0), ['made']);
    assert.deepEqual(
      room.given.map(({ Destination }) => Destination),
      ['/etc/hosts', '/etc/resolv.conf'],
    );
    await room.close();
    assert.deepEqual(new Set(told.splice(0)), new Set(['closed', 'removed']));
    // One that fails is made when it is needed, and leaves nothing.
    fails = true;
    rooms.prepare('default');
    await assert.rejects(rooms.take('default'), { message: 'no more namespaces' });
    assert.deepEqual(told.splice(0), ['fails', 'closed', 'fails', 'closed']);
    fails = false;
    // A RUN with another network has another one.
    rooms.prepare('default');
    const other = await rooms.take('host');
    assert.deepEqual([other.sandbox.path, told.splice(0)], [undefined, ['made']]);
    await other.close();
    told.splice(0);
    await rooms.end();
    assert.deepEqual(new Set(told.splice(0)), new Set(['closed', 'removed']));
    rooms.prepare('default');
    await rooms.end();
    assert.deepEqual([told, await readdir(join(dir, 'places'))], [[], []]);
  } finally {
    await rm(dir, { recursive: true });
  }
});
