/** Helpers that network drivers and address managers share. */
import { isIP } from 'node:net';
import { EngineError, internal, isEngineError } from '../errors/engine-error.js';
import { PLUGIN_REFUSED } from '../ports/plugin.js';
import { memberOf, PLUGIN_LIMITS, type PluginLimits } from './plugin-client.js';
import type { Plugin } from './plugin.js';

/** The limits are longer than usual, because containers and networks need the answer. */
const LIMITS: PluginLimits = { ...PLUGIN_LIMITS, callMs: 30_000 };

/** Asks as `Plugin.ask` does; a refusal is quoted in the known engine's words. */
export async function askRemote(plugin: Plugin, method: string, argument: unknown): Promise<unknown> {
  try {
    return await plugin.ask(method, argument, LIMITS);
  } catch (error) {
    if (isEngineError(error) && error.code === PLUGIN_REFUSED)
      throw new EngineError(error.kind, `remote: ${error.message}`, { code: PLUGIN_REFUSED, cause: error });
    throw error;
  }
}

/**
 * Returns a text in an answer, by its name in lower case; '' if it is missing. @throws EngineError internal for
 * anything else.
 */
export function textMember(method: string, value: unknown, name: string): string {
  const member = memberOf(value, name) ?? '';
  if (typeof member !== 'string')
    throw internal(`${method}: "${name}" in the answer is not a text`, { code: 'PLUGIN' });
  return member;
}

/** True for an address with its prefix length. */
export function isCidr(text: string, family: 4 | 6): boolean {
  const [address = '', prefix = '', ...more] = text.split('/');
  return (
    isIP(address) === family &&
    /^\d{1,3}$/.test(prefix) &&
    Number(prefix) <= (family === 4 ? 32 : 128) &&
    more.length === 0
  );
}
