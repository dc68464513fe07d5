/** An address manager over the plugin protocol. */
import { isIP } from 'node:net';
import { type EngineError, internal } from '../errors/engine-error.js';
import type { AddressPlugin, AddressPool } from '../ports/network-plugin.js';
import { memberOf } from './plugin-client.js';
import type { Plugin } from './plugin.js';
import { askRemote, isCidr, textMember } from './remote-answers.js';

export class ProtocolAddressPlugin implements AddressPlugin {
  constructor(private readonly plugin: Plugin) {}

  get name(): string {
    return this.plugin.id;
  }

  async capabilities(): Promise<{ readonly requiresMac: boolean; readonly requiresReplay: boolean }> {
    // Older managers do not know this question.
    const answer = await this.#ask('GetCapabilities', {}).catch(() => undefined);
    return {
      requiresMac: memberOf(answer, 'requiresmacaddress') === true,
      requiresReplay: memberOf(answer, 'requiresrequestreplay') === true,
    };
  }

  async addressSpace(): Promise<string> {
    return textMember(
      'IpamDriver.GetDefaultAddressSpaces',
      await this.#ask('GetDefaultAddressSpaces', {}),
      'localdefaultaddressspace',
    );
  }

  async requestPool({
    addressSpace,
    subnet,
    range,
    options,
    isIpv6,
  }: Parameters<AddressPlugin['requestPool']>[0]): Promise<AddressPool> {
    const method = 'IpamDriver.RequestPool';
    const answer = await this.#ask('RequestPool', {
      AddressSpace: addressSpace,
      Pool: subnet,
      SubPool: range,
      Options: options,
      V6: isIpv6,
    });
    const id = textMember(method, answer, 'poolid');
    const pool = textMember(method, answer, 'pool');
    if (id === '') throw wrong(method, 'has no PoolID');
    if (!isCidr(pool, isIpv6 ? 6 : 4)) throw wrong(method, `has no valid Pool: ${pool}`);
    const gateway = textMember(method, memberOf(answer, 'data'), 'com.docker.network.gateway').split('/')[0] ?? '';
    if (gateway !== '' && isIP(gateway) !== (isIpv6 ? 6 : 4)) throw wrong(method, `has no valid gateway: ${gateway}`);
    return { id, subnet: pool, gateway };
  }

  async releasePool(poolId: string): Promise<void> {
    await this.#ask('ReleasePool', { PoolID: poolId });
  }

  async requestAddress(
    poolId: string,
    address: string,
    { gateway, macAddress }: { readonly gateway?: true; readonly macAddress?: string },
  ): Promise<string> {
    const method = 'IpamDriver.RequestAddress';
    const options = {
      ...(gateway ? { RequestAddressType: 'com.docker.network.gateway' } : {}),
      ...(macAddress === undefined ? {} : { 'com.docker.network.endpoint.macaddress': macAddress }),
    };
    const given = textMember(
      method,
      await this.#ask('RequestAddress', { PoolID: poolId, Address: address, Options: options }),
      'address',
    );
    if (!isCidr(given, 4) && !isCidr(given, 6))
      throw wrong(method, given === '' ? 'has no address' : `has no valid address: ${given}`);
    return given;
  }

  async releaseAddress(poolId: string, address: string): Promise<void> {
    await this.#ask('ReleaseAddress', { PoolID: poolId, Address: address });
  }

  #ask(method: string, argument: unknown): Promise<unknown> {
    return askRemote(this.plugin, `IpamDriver.${method}`, argument);
  }
}

function wrong(method: string, what: string): EngineError {
  return internal(`${method}: the answer ${what}`, { code: 'PLUGIN' });
}
