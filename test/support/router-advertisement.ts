/** Sends IPv6 router advertisements (RFC 4861, 4.2) out of a link in another network namespace, as a raw frame. */
import { closeSync } from 'node:fs';
import { addressBytes } from '../../src/sys/net/ip-address.js';
import { libc } from '../../src/sys/ffi/libc.js';
import { inNetns } from '../../src/sys/process/netns.js';
import { Netlink } from '../../src/sys/netlink/route-netlink.js';

// linux/if_packet.h, linux/if_ether.h
const AF_PACKET = 17;
const SOCK_RAW = 3;
const IPV6_ETHERTYPE = 0x86dd;
const SOCKADDR_BYTES = 20;
const ALL_NODES = { mac: Buffer.from('333300000001', 'hex'), ip: addressBytes('ff02::1') };
const ICMPV6 = 58;

const socket = libc.checked<[family: number, type: number, protocol: number]>(
  'socket',
  'int socket(int family, int type, int protocol)',
);
const sendto = libc.checked<[fd: number, data: Buffer, length: number, flags: number, to: Buffer, toLength: number]>(
  'sendto',
  'long sendto(int fd, const void *data, size_t length, int flags, const void *to, uint32_t toLength)',
);

export interface Advertisement {
  /** The advertisement comes from this network namespace. */
  readonly netnsPath: string;
  readonly link: string;
  /** MAC address of the sender, with colons. */
  readonly mac: string;
  /** Network that receivers are to take addresses from, 64 bits. */
  readonly prefix: string;
  readonly count: number;
}

export function sendAdvertisements({ netnsPath, link, mac, prefix, count }: Advertisement): void {
  inNetns(netnsPath, () => {
    const netlink = new Netlink();
    const index = netlink.indexOf(link) ?? 0;
    netlink.close();
    const fd = socket(AF_PACKET, SOCK_RAW, 0);
    try {
      const to = Buffer.alloc(SOCKADDR_BYTES);
      to.writeUInt16LE(AF_PACKET, 0);
      to.writeInt32LE(index, 4);
      const bytes = frame(Buffer.from(mac.replaceAll(':', ''), 'hex'), addressBytes(prefix));
      for (let n = 0; n < count; n++) sendto(fd, bytes, bytes.length, 0, to, to.length);
    } finally {
      closeSync(fd);
    }
  });
}

function frame(mac: Buffer, prefix: Buffer): Buffer {
  const sender = addressBytes('fe80::bad');
  const message = advertisement(mac, prefix);
  message.writeUInt16BE(checksum(Buffer.concat([sender, ALL_NODES.ip, lengthAndProtocol(message.length), message])), 2);
  const header = Buffer.alloc(8);
  header[0] = 0x60;
  header.writeUInt16BE(message.length, 4);
  header[6] = ICMPV6;
  // Only a neighbour can send a packet with this hop limit.
  header[7] = 255;
  const type = Buffer.alloc(2);
  type.writeUInt16BE(IPV6_ETHERTYPE);
  return Buffer.concat([ALL_NODES.mac, mac, type, header, sender, ALL_NODES.ip, message]);
}

function advertisement(mac: Buffer, prefix: Buffer): Buffer {
  const head = Buffer.alloc(16);
  head[0] = 134;
  head[4] = 64;
  head.writeUInt16BE(1800, 6);
  const information = Buffer.alloc(16);
  information[0] = 3;
  information[1] = 4;
  information[2] = 64;
  // On the link, and good for addresses of one's own making.
  information[3] = 0xc0;
  information.writeUInt32BE(3600, 4);
  information.writeUInt32BE(3600, 8);
  return Buffer.concat([head, Buffer.of(1, 1), mac, information, prefix]);
}

function lengthAndProtocol(length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32BE(length, 0);
  bytes[7] = ICMPV6;
  return bytes;
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
