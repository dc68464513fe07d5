/** The kernel's table of connections (ctnetlink). */
import { isEngineError } from '../../errors/engine-error.js';
import {
  attribute,
  attributesOf,
  nestedAttribute,
  NLM_F_DUMP,
  u32Attribute,
  u8Attribute,
  type NetlinkMessage,
} from './netlink-wire.js';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink-socket.js';

// linux/netfilter/nfnetlink_conntrack.h
const SUBSYSTEM = 1;
const CT_GET = 1;
const CT_DELETE = 2;
const CTA = { origin: 1, reply: 2, id: 12, filter: 25 } as const;
const TUPLE = { addresses: 1, protocol: 2 } as const;
const PROTOCOL = { number: 1, destinationPort: 3 } as const;
const FILTER_ORIGIN = 1;
const FILTER_REPLY = 2;
/** The fields of PROTOCOL in the mask of a filter. */
const WANTED_FIELDS = (1 << 3) | (1 << 5);
const GENMSG_BYTES = 4;
const NESTED = 0x8000;
const FAMILY: Readonly<Record<4 | 6, number>> = { 4: 2, 6: 10 };

export interface Flow {
  /** IP protocol number. */
  readonly protocol: number;
  /** The port that the first packet went to. */
  readonly port: number;
}

/**
 * Forgets connections that came to these ports, so that their next packet is looked at as a first one. Those whose
 * source was translated leave the host, and stay.
 */
export async function forgetFlows(family: 4 | 6, flows: readonly Flow[]): Promise<void> {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    for (const flow of flows) {
      const answers = await socket.request([
        message(CT_GET, NLM_F_DUMP, family, [
          originOf(flow),
          nestedAttribute(CTA.filter, [u32Attribute(FILTER_ORIGIN, WANTED_FIELDS), u32Attribute(FILTER_REPLY, 0)]),
        ]),
      ]);
      const found = answers
        .map(({ payload }) => new Map(attributesOf(payload, GENMSG_BYTES)))
        .filter((entry) => isWanted(entry, flow));
      for (const entry of found) {
        const parts = [CTA.origin, CTA.id].flatMap((type) =>
          entry.has(type)
            ? [attribute(type | (type === CTA.origin ? NESTED : 0), entry.get(type) ?? Buffer.alloc(0))]
            : [],
        );
        // It may have ended by itself.
        await socket.request([message(CT_DELETE, 0, family, parts)]).catch((error: unknown) => {
          if (!isEngineError(error) || error.code !== 'ENOENT') throw error;
        });
      }
    }
  } finally {
    socket.close();
  }
}

function message(type: number, flags: number, family: 4 | 6, attributes: readonly Buffer[]): NetlinkMessage {
  return {
    type: (SUBSYSTEM << 8) | type,
    flags,
    body: Buffer.concat([Buffer.of(FAMILY[family], 0, 0, 0), ...attributes]),
  };
}

function originOf({ protocol, port }: Flow): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(port);
  return nestedAttribute(CTA.origin, [
    nestedAttribute(TUPLE.protocol, [
      u8Attribute(PROTOCOL.number, protocol),
      attribute(PROTOCOL.destinationPort, bytes),
    ]),
  ]);
}

/** Older kernels do not filter by themselves. */
function isWanted(entry: ReadonlyMap<number, Buffer>, flow: Flow): boolean {
  const [origin, reply] = [tupleOf(entry.get(CTA.origin)), tupleOf(entry.get(CTA.reply))];
  return origin.protocol === flow.protocol && origin.port === flow.port && origin.source === reply.destination;
}

function tupleOf(tuple: Buffer | undefined): {
  readonly source: string;
  readonly destination: string;
  readonly protocol: number;
  readonly port: number;
} {
  const parts = new Map(tuple ? attributesOf(tuple, 0) : []);
  const empty = Buffer.alloc(0);
  // Source before destination, whatever the family.
  const [source, destination] = [...attributesOf(parts.get(TUPLE.addresses) ?? empty, 0)]
    .toSorted(([a], [b]) => a - b)
    .map(([, value]) => value.toString('hex'));
  const protocol = new Map(attributesOf(parts.get(TUPLE.protocol) ?? empty, 0));
  return {
    source: source ?? '',
    destination: destination ?? '',
    protocol: protocol.get(PROTOCOL.number)?.[0] ?? 0,
    port: protocol.get(PROTOCOL.destinationPort)?.readUInt16BE(0) ?? 0,
  };
}
