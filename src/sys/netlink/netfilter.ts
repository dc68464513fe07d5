/** Asks the kernel about the packet filter, which takes microseconds where programs take milliseconds. */
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { socket } from '../net/socket-calls.js';
import { NETLINK_NETFILTER, NetlinkSocket } from './netlink-socket.js';
import { attributesOf, textAttribute } from './netlink-wire.js';

// linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h, linux/netfilter_ipv4/ip_tables.h,
// linux/netfilter_ipv6/ip6_tables.h
const NFT_MSG_GETTABLE = (10 << 8) | 1;
const NFT_MSG_GETGEN = (10 << 8) | 16;
const NFTA_TABLE_NAME = 1;
const NFTA_GEN_ID = 1;
const GENMSG_BYTES = 4;
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_RAW_CLOEXEC = 3 | 0x80000;
const IPPROTO_RAW = 255;
const SOL_IP = 0;
const SOL_IPV6 = 41;
const IPT_SO_GET_INFO = 64;
/** struct ipt_getinfo: name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = 32 + 4 + 5 * 4 + 5 * 4 + 4 + 4;

const getsockopt = libc.func<[fd: number, level: number, name: number, value: Buffer, length: Uint32Array]>(
  'int getsockopt(int fd, int level, int name, void *value, void *length)',
);

/**
 * Tells that the kernel has no table of this name and family in the network namespace of the thread. False means that
 * there may be one: only a program says for what other reason the kernel refuses an answer.
 */
export function lacksNftTable(family: 4 | 6, name: string): boolean {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  // struct nfgenmsg: family, version 0, resource 0.
  const head = Buffer.of(family === 4 ? AF_INET : AF_INET6, 0, 0, 0);
  const body = Buffer.concat([head, textAttribute(NFTA_TABLE_NAME, name)]);
  try {
    socket.requestNow([{ type: NFT_MSG_GETTABLE, flags: 0, body }]);
    return false;
  } catch (error) {
    return isEngineError(error) && error.code === 'ENOENT';
  } finally {
    socket.close();
  }
}

/** Belongs for ever to the network namespace that the thread was in when it was made. */
export class RulesetWatch {
  readonly #nft = new NetlinkSocket(NETLINK_NETFILTER);
  readonly #legacy: readonly { readonly fd: number; readonly level: number }[];

  /** `legacy`: the iptables commands write to the old tables, whose sizes are looked at, too. */
  constructor(legacy: boolean) {
    this.#legacy = legacy
      ? [
          { fd: socket(AF_INET, SOCK_RAW_CLOEXEC, IPPROTO_RAW), level: SOL_IP },
          { fd: socket(AF_INET6, SOCK_RAW_CLOEXEC, IPPROTO_RAW), level: SOL_IPV6 },
        ]
      : [];
  }

  /** Differs from an earlier one when rules have been changed since. */
  fingerprint(): string {
    return [
      this.#generation(),
      ...this.#legacy.flatMap(({ fd, level }) => ['filter', 'nat'].map((table) => tableInfo(fd, level, table))),
    ].join(' ');
  }

  close(): void {
    this.#nft.close();
    for (const { fd } of this.#legacy) closeFd(fd);
  }

  #generation(): number {
    try {
      const answers = this.#nft.requestNow([{ type: NFT_MSG_GETGEN, flags: 0, body: Buffer.alloc(GENMSG_BYTES) }]);
      for (const { payload } of answers)
        for (const [type, value] of attributesOf(payload, GENMSG_BYTES))
          if (type === NFTA_GEN_ID) return value.readUInt32BE(0);
    } catch (error) {
      // A kernel without nftables has no generations.
      if (!(error instanceof EngineError)) throw error;
    }
    return 0;
  }
}

function tableInfo(fd: number, level: number, table: string): string {
  const info = Buffer.alloc(INFO_BYTES);
  info.write(table, 0, 'latin1');
  return getsockopt(fd, level, IPT_SO_GET_INFO, info, Uint32Array.of(INFO_BYTES)) < 0 ? '' : info.toString('hex', 32);
}
