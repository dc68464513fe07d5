/** What a daemon without cluster mode, builder and managed plugins answers: it tells that there is none, instead of hiding it behind a missing page. */
import { notImplemented, unavailable } from '../../errors/engine-error.js';
import { route, type Route } from '../route.js';

const LISTS = ['/services', '/nodes', '/tasks', '/secrets', '/configs', '/swarm', '/swarm/unlockkey'];
const ITEMS = ['/services/{id}', '/nodes/{id}', '/tasks/{id}', '/secrets/{id}', '/configs/{id}'];

export function absentPartRoutes(): Route[] {
  const notManager = (): never => {
    throw unavailable('This node is not a swarm manager. Use "docker swarm init" or "docker swarm join" to connect this node to swarm and try again.');
  };
  const notMember = (): never => {
    throw unavailable('This node is not part of a swarm');
  };
  const noCluster = (): never => {
    throw notImplemented('this engine has no cluster mode');
  };
  const noCheckpoints = (): never => {
    throw notImplemented('this engine has no checkpoints');
  };
  return [
    ...[...LISTS, ...ITEMS].map((path) => route('GET', path, notManager)),
    ...['/services/create', '/secrets/create', '/configs/create', '/swarm/update', '/swarm/unlock'].map((path) => route('POST', path, notManager)),
    ...ITEMS.map((path) => route('DELETE', path, notManager)),
    ...ITEMS.map((path) => route('POST', `${path}/update`, notManager)),
    route('POST', '/swarm/leave', notMember),
    route('POST', '/swarm/init', noCluster),
    route('POST', '/swarm/join', noCluster),
    route('POST', '/build', () => {
      throw notImplemented('this engine has no builder: build with buildx or another builder of its own and load or push the image');
    }, { body: 'archive' }),
    ...(['GET', 'POST'] as const).map((method) => route(method, '/containers/{name}/checkpoints', noCheckpoints)),
    route('DELETE', '/containers/{name}/checkpoints/{checkpoint}', noCheckpoints),
    // `system prune` asks for it.
    route('POST', '/build/prune', (x) => x.sendJson(200, { CachesDeleted: null, SpaceReclaimed: 0 })),
    route('GET', '/plugins', (x) => x.sendJson(200, [])),
  ];
}
