/** Leads packets for one port of a local address to another, inside the network namespace that the thread is in. */
import { addressBytes } from './ip-address.js';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink-socket.js';
import { attribute, nestedAttribute, NLM_F_APPEND, NLM_F_CREATE, textAttribute, type NetlinkMessage } from './netlink-wire.js';

// linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h, linux/netfilter.h, linux/in.h
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;
const NFNL_SUBSYS_NFTABLES = 10;
const NFT_MSG = { newTable: 0, deleteTable: 2, newChain: 3, newRule: 6 } as const;
const TABLE_NAME = 1;
const CHAIN = { table: 1, name: 3, hook: 4, type: 7 } as const;
const HOOK = { number: 1, priority: 2 } as const;
const RULE = { table: 1, chain: 2, expressions: 4 } as const;
const LIST_ELEMENT = 1;
const EXPRESSION = { name: 1, data: 2 } as const;
const DATA_VALUE = 1;
const META = { register: 1, key: 2 } as const;
const META_L4PROTO = 16;
const COMPARE = { register: 1, operator: 2, data: 3 } as const;
const PAYLOAD = { register: 1, base: 2, offset: 3, length: 4 } as const;
const NETWORK_HEADER = 1;
const TRANSPORT_HEADER = 2;
const IMMEDIATE = { register: 1, data: 2 } as const;
const NAT = { type: 1, family: 2, address: 3, port: 5 } as const;
const NAT_DESTINATION = 1;
const REGISTER_1 = 1;
const REGISTER_2 = 2;
const NF_INET_LOCAL_OUT = 3;
const PRIORITY_DNAT = -100;
const NFPROTO_IPV4 = 2;
const PROTOCOL = { tcp: 6, udp: 17 } as const;
const IPV4_DESTINATION = { offset: 16, length: 4 } as const;
const DESTINATION_PORT = { offset: 2, length: 2 } as const;

const TABLE = 'engine_dns';
const OUTPUT = 'output';

export interface PortRedirect {
  readonly protocol: keyof typeof PROTOCOL;
  readonly port: number;
  readonly to: number;
}

/** A socket for `apply`: belongs for ever to the namespace in which it was made. */
export class RedirectSocket {
  readonly #socket = new NetlinkSocket(NETLINK_NETFILTER);

  /**
   * Sets the redirects of an IPv4 address in a table of our own, in place of those that were there.
   * @throws EngineError code EOPNOTSUPP, EAFNOSUPPORT or ENOENT where the kernel has no nftables or no NAT in it.
   */
  async apply(address: string, redirects: readonly PortRedirect[]): Promise<void> {
    const table = [textAttribute(TABLE_NAME, TABLE)];
    await this.#socket.transact(batch(NFNL_MSG_BATCH_BEGIN), [
      message(NFT_MSG.newTable, NLM_F_CREATE, table),
      message(NFT_MSG.deleteTable, 0, table),
      message(NFT_MSG.newTable, NLM_F_CREATE, table),
      message(NFT_MSG.newChain, NLM_F_CREATE, [
        textAttribute(CHAIN.table, TABLE),
        textAttribute(CHAIN.name, OUTPUT),
        nestedAttribute(CHAIN.hook, [number(HOOK.number, NF_INET_LOCAL_OUT), number(HOOK.priority, PRIORITY_DNAT)]),
        textAttribute(CHAIN.type, 'nat'),
      ]),
      ...redirects.map((redirect) =>
        message(NFT_MSG.newRule, NLM_F_CREATE | NLM_F_APPEND, [textAttribute(RULE.table, TABLE), textAttribute(RULE.chain, OUTPUT), nestedAttribute(RULE.expressions, expressions(address, redirect))]),
      ),
    ], batch(NFNL_MSG_BATCH_END));
  }

  close(): void {
    this.#socket.close();
  }
}

/** `meta l4proto P ip daddr A th dport F dnat to A:T` */
function expressions(address: string, { protocol, port, to }: PortRedirect): Buffer[] {
  return [
    expression('meta', [number(META.register, REGISTER_1), number(META.key, META_L4PROTO)]),
    equals(Buffer.of(PROTOCOL[protocol])),
    payload(NETWORK_HEADER, IPV4_DESTINATION),
    equals(addressBytes(address)),
    payload(TRANSPORT_HEADER, DESTINATION_PORT),
    equals(portBytes(port)),
    expression('immediate', [number(IMMEDIATE.register, REGISTER_1), nestedAttribute(IMMEDIATE.data, [attribute(DATA_VALUE, addressBytes(address))])]),
    expression('immediate', [number(IMMEDIATE.register, REGISTER_2), nestedAttribute(IMMEDIATE.data, [attribute(DATA_VALUE, portBytes(to))])]),
    expression('nat', [number(NAT.type, NAT_DESTINATION), number(NAT.family, NFPROTO_IPV4), number(NAT.address, REGISTER_1), number(NAT.port, REGISTER_2)]),
  ];
}

function expression(name: string, data: readonly Buffer[]): Buffer {
  return nestedAttribute(LIST_ELEMENT, [textAttribute(EXPRESSION.name, name), nestedAttribute(EXPRESSION.data, data)]);
}

function payload(base: number, { offset, length }: { readonly offset: number; readonly length: number }): Buffer {
  return expression('payload', [number(PAYLOAD.register, REGISTER_1), number(PAYLOAD.base, base), number(PAYLOAD.offset, offset), number(PAYLOAD.length, length)]);
}

function equals(value: Buffer): Buffer {
  return expression('cmp', [number(COMPARE.register, REGISTER_1), number(COMPARE.operator, 0), nestedAttribute(COMPARE.data, [attribute(DATA_VALUE, value)])]);
}

function portBytes(port: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(port);
  return bytes;
}

/** nfnetlink has its numbers in network byte order. */
function number(type: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return attribute(type, bytes);
}

function message(type: number, flags: number, attributes: readonly Buffer[]): NetlinkMessage {
  return { type: (NFNL_SUBSYS_NFTABLES << 8) | type, flags, body: Buffer.concat([Buffer.of(NFPROTO_IPV4, 0, 0, 0), ...attributes]) };
}

function batch(type: number): NetlinkMessage {
  return { type, flags: 0, body: Buffer.of(0, 0, 0, NFNL_SUBSYS_NFTABLES) };
}
