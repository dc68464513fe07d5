/**
 * These routes belong to parts that this daemon does not have: cluster mode and checkpoints. They say so, because a
 * missing page (404) would hide it.
 */
import { notImplemented, unavailable } from '../../errors/engine-error.js';
import { notManager } from '../../errors/not-manager.js';
import { route, type Route } from '../route.js';

const LISTS = ['/services', '/nodes', '/tasks', '/secrets', '/configs', '/swarm', '/swarm/unlockkey'];
const ITEMS = ['/services/{id}', '/nodes/{id}', '/tasks/{id}', '/secrets/{id}', '/configs/{id}'];
const LOGS = ['/services/{id}/logs', '/tasks/{id}/logs'];

export function absentPartRoutes(): Route[] {
  const noManager = (): never => {
    throw notManager();
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
    ...[...LISTS, ...ITEMS, ...LOGS].map((path) => route('GET', path, noManager)),
    ...['/services/create', '/secrets/create', '/configs/create', '/swarm/update', '/swarm/unlock'].map((path) =>
      route('POST', path, noManager),
    ),
    ...ITEMS.map((path) => route('DELETE', path, noManager)),
    ...ITEMS.map((path) => route('POST', `${path}/update`, noManager)),
    route('POST', '/swarm/leave', notMember),
    route('POST', '/swarm/init', noCluster),
    route('POST', '/swarm/join', noCluster),
    ...(['GET', 'POST'] as const).map((method) => route(method, '/containers/{name}/checkpoints', noCheckpoints)),
    route('DELETE', '/containers/{name}/checkpoints/{checkpoint}', noCheckpoints),
  ];
}
