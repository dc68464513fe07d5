/** Options that are accepted and change nothing. */
import type { OptionName } from '../../src/config/options.js';

export const WITHOUT_EFFECT: readonly OptionName[] = [
  'builderGc',
  'disablePigz',
  'networkControlPlaneMtu',
  'supervisorPluginsNamespace',
  'swarmDefaultAdvertiseAddr',
  'userlandProxyPath',
];
