/** Options that are accepted and change nothing here: one line of the log says so, and the configuration in effect. */
import assert from 'node:assert/strict';
import { OPTION_LIST, type OptionName } from '../../src/config/options.js';
import { callJson } from '../support/http.js';
import type { Group, Scene } from './scene.js';

interface Notices {
  readonly notices: readonly { readonly key: string; readonly message: string }[];
}

/** A row that fails unless there is one notice of the option, and one line of the log. */
function announced(option: OptionName): (scene: Scene) => Promise<void> {
  const title = OPTION_LIST.find(({ name }) => name === option)?.title ?? assert.fail(option);
  return async ({ engine }) => {
    const { notices } = await callJson<Notices>(engine.socketPath, 'GET', '/engine/config');
    const messages = notices.flatMap(({ key, message }) => (key === title ? [message] : []));
    assert.equal(messages.length, 1, messages.join('\n'));
    const [message = ''] = messages;
    assert.ok(message.startsWith(`${title} has no effect: `), message);
    assert.equal(engine.log.split(`msg="${message}"`).length, 2, 'one line says it');
  };
}

/** Each with a value that an operator may have chosen. */
export const ANNOUNCED_FLAGS = [
  '--network-control-plane-mtu=1400',
  '--selinux-enabled',
  '--swarm-default-advertise-addr=192.0.2.9',
  '--userland-proxy-path=/bin/true',
];
export const ANNOUNCED_ENVIRONMENT = { ENGINE_DISABLE_PIGZ: '1' };

export const ANNOUNCED: Group['rows'] = {
  disablePigz: announced('disablePigz'),
  networkControlPlaneMtu: announced('networkControlPlaneMtu'),
  selinuxEnabled: announced('selinuxEnabled'),
  swarmDefaultAdvertiseAddr: announced('swarmDefaultAdvertiseAddr'),
  userlandProxyPath: announced('userlandProxyPath'),
};
