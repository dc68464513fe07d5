/** Some things a RUN may do only when the client has granted them and the configuration allows them. */
import type { RunInstruction } from '../../../build/dockerfile/ast.js';
import { internal } from '../../../errors/engine-error.js';
import type { RunSettings } from '../../../ports/build.js';

/** The code of an error that no process is to blame for, because the step cannot begin. */
export const STEP_REFUSED = 'STEP_REFUSED';

export type StepNetwork = 'default' | 'none' | 'host';

/** Returns the network of a step; the setting of the build is for those that name none. */
export function stepNetwork(
  { network }: Pick<RunInstruction, 'network'>,
  { networkMode }: Pick<RunSettings, 'networkMode'>,
): StepNetwork {
  if (network !== 'default') return network;
  return networkMode === 'none' || networkMode === 'host' ? networkMode : 'default';
}

/** @throws EngineError when the step asks for more than the build was granted. */
export function requireEntitled(
  instruction: Pick<RunInstruction, 'network' | 'security' | 'devices'>,
  settings: Pick<RunSettings, 'networkMode' | 'entitlements'>,
): void {
  const { entitlements } = settings;
  const needed = [
    ...(stepNetwork(instruction, settings) === 'host' ? ['network.host'] : []),
    ...(instruction.security === 'insecure' ? ['security.insecure'] : []),
  ].find((entitlement) => !entitlements.includes(entitlement));
  if (needed !== undefined) throw internal(`failed to load LLB: ${needed} is not allowed`, { code: STEP_REFUSED });
  if (instruction.devices.length > 0) {
    throw internal('device feature is only supported in Dockerfile frontend 1.14.0-labs or later', {
      code: STEP_REFUSED,
    });
  }
}
