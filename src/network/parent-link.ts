/** Networks on a link that the host has already: containers get links stacked on it (macvlan, ipvlan). */
import { internal, invalid, isEngineError, unavailable } from '../errors/engine-error.js';
import type { NetworkSummary } from '../ports/network.js';
import {
  IPVLAN_FLAGS,
  IPVLAN_MODES,
  MACVLAN_MODES,
  type Link,
  type Netlink,
  type StackKind,
} from '../sys/netlink/route-netlink.js';
import type { ContainerEnd, Medium } from './attachable-network.js';
import { ownMember } from '../text/own-member.js';

export interface ParentPlan {
  readonly kind: StackKind;
  /** Name of the link that containers' links are stacked on. */
  readonly parent: string;
  /** How to make the parent if it is missing: as a VLAN of another link, or as a link to nowhere. */
  readonly recipe: { readonly base: string; readonly vlan: number } | 'dummy' | undefined;
  readonly mode: number;
  readonly flag: number;
  /** True if nobody gets out. */
  readonly isolated: boolean;
  /** True if containers leave without a gateway, because the host routes (ipvlan's layer 3 modes). */
  readonly routed: boolean;
}

const VLAN_NAME = /^(.+)\.(\d{1,4})$/;

/** Plans the parent of a network. @throws EngineError invalid for options that cannot be fulfilled. */
export function parentPlan({ id, driver, internal, options }: NetworkSummary): ParentPlan {
  const kind = driver as StackKind;
  const given = options['parent'] ?? '';
  if (given === 'lo') throw invalid(`loopback interface is not a valid ${kind} parent link`, { code: 'PARENT' });
  const isolated = internal || given === '';
  const parent = given === '' ? `dm-${id.slice(0, 12)}` : given;
  const modes = kind === 'macvlan' ? MACVLAN_MODES : IPVLAN_MODES;
  const byDefault = kind === 'macvlan' ? 'bridge' : 'l2';
  const mode = ownMember(options, `${kind}_mode`) || byDefault;
  const flag = (kind === 'ipvlan' && options['ipvlan_flag']) || 'bridge';
  if (!Object.hasOwn(modes, mode))
    throw invalid(`requested ${kind} mode '${mode}' is not valid, '${byDefault}' mode is the ${kind} driver default`, {
      code: 'MODE',
    });
  if (!Object.hasOwn(IPVLAN_FLAGS, flag))
    throw invalid(`requested ipvlan flag '${flag}' is not valid, 'bridge' mode is the ipvlan driver default`, {
      code: 'MODE',
    });
  const [, base = '', vlan = ''] = VLAN_NAME.exec(parent) ?? [];
  return {
    kind,
    parent,
    recipe: given === '' ? 'dummy' : base === '' ? undefined : { base, vlan: Number(vlan) },
    mode: modes[mode] ?? 0,
    flag: IPVLAN_FLAGS[flag] ?? 0,
    isolated,
    routed: kind === 'ipvlan' && mode !== 'l2',
  };
}

export class ParentLink implements Medium {
  private constructor(
    private readonly plan: ParentPlan,
    private readonly index: number,
    readonly mtu: number,
    private readonly netlink: Netlink,
    /** True if the parent link existed before the network. */
    readonly isForeign: boolean,
  ) {}

  /**
   * Finds or makes the parent.
   * @throws EngineError invalid naming the parent; code EOPNOTSUPP if the kernel lacks a driver.
   */
  static async open(
    plan: ParentPlan,
    netlink: Netlink,
    links: readonly Link[],
    isForeign: boolean,
  ): Promise<ParentLink> {
    const existing = links.find(({ name }) => name === plan.parent);
    if (existing) return new ParentLink(plan, existing.index, existing.mtu, netlink, isForeign);
    const { recipe, parent } = plan;
    if (recipe === undefined)
      throw invalid(`invalid subinterface vlan name ${parent}, example formatting is eth0.10`, { code: 'PARENT' });
    if (recipe === 'dummy') await netlink.createDummy(parent).catch(explain('dummy'));
    else {
      const base = links.find(({ name }) => name === recipe.base);
      if (!base) throw invalid(`failed to find master interface ${recipe.base} on the host`, { code: 'PARENT' });
      if (recipe.vlan < 1 || recipe.vlan > 4094)
        throw invalid(`vlan id must be between 1-4094, received: ${recipe.vlan}`, { code: 'PARENT' });
      await netlink.createVlan(parent, base.index, recipe.vlan).catch(explain('vlan'));
    }
    const made = (await netlink.links()).find(({ name }) => name === parent);
    if (!made) throw unavailable(`the link ${parent} vanished while it was made`);
    return new ParentLink(plan, made.index, made.mtu, netlink, isForeign);
  }

  plug({ name, mac, netnsFd }: ContainerEnd): Promise<void> {
    const { kind, mode, flag } = this.plan;
    return this.netlink
      .createStacked({ kind, name, parentIndex: this.index, mode, flag, mac, netnsFd })
      .catch(explain(kind));
  }
}

/** Explains a failure; the known engine only says that it is not supported. */
function explain(kind: string): (error: unknown) => never {
  return (error) => {
    if (isEngineError(error) && (error.code === 'ENOTSUP' || error.code === 'EOPNOTSUPP'))
      throw internal(`operation not supported: this kernel has no links of type ${kind}`, {
        code: 'NO_LINK_TYPE',
        cause: error,
      });
    throw error;
  };
}
