/**
 * Leads packets for one port of a local address to another, inside the network namespace that the thread is in. The
 * ports are rewritten in every packet, both ways, without the kernel's table of connections: that would cost each
 * question to a name server an entry, and be asked about every packet of the namespace.
 */
import { addressBytes } from '../net/ip-address.js';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink-socket.js';
import {
  attribute,
  nestedAttribute,
  NLM_F_APPEND,
  NLM_F_CREATE,
  textAttribute,
  type NetlinkMessage,
} from './netlink-wire.js';

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
const PAYLOAD = { register: 1, base: 2, offset: 3, length: 4, source: 5, checksumType: 6, checksumOffset: 7 } as const;
const CHECKSUM_INET = 1;
const NETWORK_HEADER = 1;
const TRANSPORT_HEADER = 2;
const IMMEDIATE = { register: 1, data: 2 } as const;
const REGISTER_1 = 1;
const NF_INET_LOCAL_OUT = 3;
const NFPROTO_IPV4 = 2;
const PROTOCOL = { tcp: { number: 6, checksum: 16 }, udp: { number: 17, checksum: 6 } } as const;

const TABLE = 'engine_dns';
/**
 * The container's own rules, and its table of connections if it has one, see the port that is asked for: answers are
 * rewritten before all of them (NF_IP_PRI_RAW), questions after (NF_IP_PRI_NAT_SRC).
 */
const QUESTIONS = {
  chain: 'questions',
  priority: 100,
  address: { offset: 16, length: 4 },
  port: { offset: 2, length: 2 },
} as const;
const ANSWERS = {
  chain: 'answers',
  priority: -300,
  address: { offset: 12, length: 4 },
  port: { offset: 0, length: 2 },
} as const;
type Direction = typeof QUESTIONS | typeof ANSWERS;

/** Bytes of a header. */
interface Field {
  readonly offset: number;
  readonly length: number;
}

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
   * @throws EngineError code EOPNOTSUPP, EAFNOSUPPORT or ENOENT where the kernel has no nftables.
   */
  async apply(address: string, redirects: readonly PortRedirect[]): Promise<void> {
    const table = [textAttribute(TABLE_NAME, TABLE)];
    await this.#socket.transact(
      batch(NFNL_MSG_BATCH_BEGIN),
      [
        message(NFT_MSG.newTable, NLM_F_CREATE, table),
        message(NFT_MSG.deleteTable, 0, table),
        message(NFT_MSG.newTable, NLM_F_CREATE, table),
        ...[QUESTIONS, ANSWERS].map(({ chain, priority }) =>
          message(NFT_MSG.newChain, NLM_F_CREATE, [
            textAttribute(CHAIN.table, TABLE),
            textAttribute(CHAIN.name, chain),
            nestedAttribute(CHAIN.hook, [number(HOOK.number, NF_INET_LOCAL_OUT), number(HOOK.priority, priority)]),
            textAttribute(CHAIN.type, 'filter'),
          ]),
        ),
        ...redirects.flatMap(({ protocol, port, to }) => [
          rule(QUESTIONS, protocol, address, port, to),
          rule(ANSWERS, protocol, address, to, port),
        ]),
      ],
      batch(NFNL_MSG_BATCH_END),
    );
  }

  close(): void {
    this.#socket.close();
  }
}

/** `ip daddr A udp dport F udp dport set T`, or of the source. */
function rule(
  { chain, address, port }: Direction,
  protocol: keyof typeof PROTOCOL,
  ip: string,
  from: number,
  to: number,
): NetlinkMessage {
  const expressions = [
    expression('meta', [number(META.register, REGISTER_1), number(META.key, META_L4PROTO)]),
    equals(Buffer.of(PROTOCOL[protocol].number)),
    payload(NETWORK_HEADER, address),
    equals(addressBytes(ip)),
    payload(TRANSPORT_HEADER, port),
    equals(portBytes(from)),
    expression('immediate', [
      number(IMMEDIATE.register, REGISTER_1),
      nestedAttribute(IMMEDIATE.data, [attribute(DATA_VALUE, portBytes(to))]),
    ]),
    expression('payload', [
      number(PAYLOAD.source, REGISTER_1),
      ...place(TRANSPORT_HEADER, port),
      number(PAYLOAD.checksumType, CHECKSUM_INET),
      number(PAYLOAD.checksumOffset, PROTOCOL[protocol].checksum),
    ]),
  ];
  return message(NFT_MSG.newRule, NLM_F_CREATE | NLM_F_APPEND, [
    textAttribute(RULE.table, TABLE),
    textAttribute(RULE.chain, chain),
    nestedAttribute(RULE.expressions, expressions),
  ]);
}

function expression(name: string, data: readonly Buffer[]): Buffer {
  return nestedAttribute(LIST_ELEMENT, [textAttribute(EXPRESSION.name, name), nestedAttribute(EXPRESSION.data, data)]);
}

function payload(base: number, field: Field): Buffer {
  return expression('payload', [number(PAYLOAD.register, REGISTER_1), ...place(base, field)]);
}

function place(base: number, { offset, length }: Field): Buffer[] {
  return [number(PAYLOAD.base, base), number(PAYLOAD.offset, offset), number(PAYLOAD.length, length)];
}

function equals(value: Buffer): Buffer {
  return expression('cmp', [
    number(COMPARE.register, REGISTER_1),
    number(COMPARE.operator, 0),
    nestedAttribute(COMPARE.data, [attribute(DATA_VALUE, value)]),
  ]);
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
  return {
    type: (NFNL_SUBSYS_NFTABLES << 8) | type,
    flags,
    body: Buffer.concat([Buffer.of(NFPROTO_IPV4, 0, 0, 0), ...attributes]),
  };
}

function batch(type: number): NetlinkMessage {
  return { type, flags: 0, body: Buffer.of(0, 0, 0, NFNL_SUBSYS_NFTABLES) };
}
