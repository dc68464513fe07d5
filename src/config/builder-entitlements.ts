/** The type of `builder.entitlements`, which says what builds may be granted by their clients. */
import { invalid } from '../errors/engine-error.js';
import { isObject, rejectRest, type ValueType } from './value-types.js';

export interface BuilderEntitlements {
  /** RUN may use the network of the host. */
  readonly networkHost: boolean;
  /** RUN may have all that a privileged container has. */
  readonly securityInsecure: boolean;
}

export const DEFAULT_ENTITLEMENTS: BuilderEntitlements = { networkHost: true, securityInsecure: false };

export const builderEntitlements: ValueType<BuilderEntitlements> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'object',
    properties: { 'network-host': { type: 'boolean' }, 'security-insecure': { type: 'boolean' } },
    additionalProperties: false,
  },
  fromFlag: () => {
    throw invalid('can be set in the configuration file only');
  },
  fromFile: (value) => {
    if (!isObject(value)) throw invalid('must be an object');
    const {
      'network-host': networkHost = DEFAULT_ENTITLEMENTS.networkHost,
      'security-insecure': securityInsecure = DEFAULT_ENTITLEMENTS.securityInsecure,
      ...rest
    } = value;
    rejectRest(rest, 'builder.entitlements');
    if (typeof networkHost !== 'boolean') throw invalid('network-host must be true or false');
    if (typeof securityInsecure !== 'boolean') throw invalid('security-insecure must be true or false');
    return { networkHost, securityInsecure };
  },
};

/** Returns the names of what may be granted, as clients ask for it. */
export function grantable({ networkHost, securityInsecure }: BuilderEntitlements): string[] {
  return [...(networkHost ? ['network.host'] : []), ...(securityInsecure ? ['security.insecure'] : [])];
}
