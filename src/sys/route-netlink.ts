/**
 * rtnetlink(7): links, addresses and routes without spawning `ip`. The kernel does the work inside send(2), which may
 * take milliseconds for links, so sends run on libuv's pool; the answers are there when send returns.
 */
import { EngineError } from '../errors/engine-error.js';
import { closeFd } from './fd.js';
import { libc, syscallError } from './libc.js';

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if.h
const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0x80000;
const NLM_F_REQUEST = 1;
const NLM_F_ACK = 4;
const NLM_F_DUMP = 0x300;
const NLM_F_EXCL = 0x200;
const NLM_F_CREATE = 0x400;
const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const RTM = { newLink: 16, deleteLink: 17, getLink: 18, newAddress: 20, getAddress: 22, newRoute: 24 } as const;
const IFLA = { address: 1, name: 3, mtu: 4, master: 10, linkInfo: 18, netnsFd: 28 } as const;
const INFO = { kind: 1, data: 2 } as const;
const VETH_PEER = 1;
const IFA = { address: 1, local: 2, broadcast: 4 } as const;
const RTA = { destination: 1, oif: 4, gateway: 5 } as const;
const IFF_UP = 1;
const AF_INET = 2;
const RECEIVE_BYTES = 1 << 16;

const socket = libc.checked<[domain: number, type: number, protocol: number]>('socket', 'int socket(int domain, int type, int protocol)');
const sendLater = libc.async<[fd: number, data: Uint8Array, length: number, flags: number]>('send', 'intptr_t send(int fd, const void *data, size_t length, int flags)');
const recv = libc.func<[fd: number, data: Uint8Array, length: number, flags: number]>('intptr_t recv(int fd, void *data, size_t length, int flags)');
const MSG_DONTWAIT = 0x40;

export interface LinkInfo {
  readonly index: number;
  readonly name: string;
  readonly mtu: number;
}

export interface AddressInfo {
  readonly linkIndex: number;
  /** Dotted. */
  readonly address: string;
  readonly prefixLength: number;
}

/** One message to the kernel: type, flags beyond REQUEST and ACK, fixed header and attributes. */
interface Message {
  readonly type: number;
  readonly flags: number;
  readonly body: Buffer;
}

interface Answer {
  readonly type: number;
  readonly payload: Buffer;
}

/** A netlink socket. It belongs for ever to the network namespace in which the constructor ran. */
export class Netlink {
  readonly #fd: number;
  #sequence = 1;
  #queue: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor() {
    this.#fd = socket(AF_NETLINK, SOCK_RAW_CLOEXEC, 0);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeFd(this.#fd);
  }

  /** A bridge that is up. @throws EngineError code EEXIST, EPERM, EOPNOTSUPP without the kernel module. */
  async createBridge(name: string, mtu: number): Promise<void> {
    await this.#request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [text(IFLA.name, name), u32(IFLA.mtu, mtu), nested(IFLA.linkInfo, [text(INFO.kind, 'bridge')])]),
    ]);
  }

  /** A veth pair: this end up and in the bridge, the peer in another namespace under its own name. */
  async createVeth(options: { readonly name: string; readonly bridgeIndex: number; readonly mtu: number; readonly peer: { readonly name: string; readonly mac: Buffer; readonly netnsFd: number } }): Promise<void> {
    const { name, bridgeIndex, mtu, peer } = options;
    const peerAttributes = [text(IFLA.name, peer.name), attribute(IFLA.address, peer.mac), u32(IFLA.mtu, mtu), u32(IFLA.netnsFd, peer.netnsFd)];
    await this.#request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [
        text(IFLA.name, name),
        u32(IFLA.mtu, mtu),
        u32(IFLA.master, bridgeIndex),
        nested(IFLA.linkInfo, [text(INFO.kind, 'veth'), nested(INFO.data, [attribute(VETH_PEER, Buffer.concat([linkHeader(0, false), ...peerAttributes]))])]),
      ]),
    ]);
  }

  /** Raises a link and gives it an address and, when named, the default route. One round trip. */
  async configureLink(index: number, address: { readonly ip: string; readonly prefixLength: number } | undefined, gateway?: string): Promise<void> {
    const messages: Message[] = [newLink(0, linkHeader(index, true), [])];
    if (address) messages.push(newAddress(index, address.ip, address.prefixLength));
    if (gateway !== undefined) messages.push(defaultRoute(index, gateway));
    await this.#request(messages);
  }

  /** Adds an address; having it already is a success. */
  async addAddress(index: number, ip: string, prefixLength: number): Promise<void> {
    await this.#request([newAddress(index, ip, prefixLength)]).catch((error: unknown) => {
      if (!(error instanceof EngineError) || error.code !== 'EEXIST') throw error;
    });
  }

  /** Deletes a link; false when there is none. */
  async deleteLink(name: string): Promise<boolean> {
    try {
      await this.#request([{ type: RTM.deleteLink, flags: 0, body: Buffer.concat([linkHeader(0, false), text(IFLA.name, name)]) }]);
      return true;
    } catch (error) {
      if (error instanceof EngineError && error.code === 'ENODEV') return false;
      throw error;
    }
  }

  /** Looks a link up by name; undefined when there is none. */
  async findLink(name: string): Promise<LinkInfo | undefined> {
    try {
      const [answer] = await this.#request([{ type: RTM.getLink, flags: 0, body: Buffer.concat([linkHeader(0, false), text(IFLA.name, name)]) }]);
      return answer && parseLink(answer.payload);
    } catch (error) {
      if (error instanceof EngineError && error.code === 'ENODEV') return undefined;
      throw error;
    }
  }

  /** All links of the namespace. */
  async links(): Promise<LinkInfo[]> {
    const answers = await this.#request([{ type: RTM.getLink, flags: NLM_F_DUMP, body: linkHeader(0, false) }]);
    return answers.filter(({ type }) => type === RTM.newLink).map(({ payload }) => parseLink(payload));
  }

  /** All IPv4 addresses of the namespace, of links that are down, too. */
  async addresses(): Promise<AddressInfo[]> {
    const body = Buffer.alloc(8);
    body[0] = AF_INET;
    const answers = await this.#request([{ type: RTM.getAddress, flags: NLM_F_DUMP, body }]);
    return answers.filter(({ type }) => type === RTM.newAddress).flatMap(({ payload }) => parseAddress(payload));
  }

  /** Sends messages in one go, in turn with other callers. Throws the first refusal. */
  #request(messages: readonly Message[]): Promise<Answer[]> {
    const run = this.#queue.then(() => this.#exchange(messages));
    this.#queue = run.catch(() => undefined);
    return run;
  }

  async #exchange(messages: readonly Message[]): Promise<Answer[]> {
    const first = this.#sequence;
    const packets = messages.map((message) => pack(message, this.#sequence++));
    const data = Buffer.concat(packets);
    await sendLater(this.#fd, data, data.length, 0);
    const answers: Answer[] = [];
    let failure: EngineError | undefined;
    const open = new Set(packets.map((_, index) => first + index));
    const buffer = Buffer.alloc(RECEIVE_BYTES);
    while (open.size > 0) {
      const length = recv(this.#fd, buffer, buffer.length, MSG_DONTWAIT);
      if (length < 0) throw syscallError('netlink recv', libc.errno());
      for (let offset = 0; offset + 16 <= length; ) {
        const size = buffer.readUInt32LE(offset);
        const type = buffer.readUInt16LE(offset + 4);
        const sequence = buffer.readUInt32LE(offset + 8);
        const payload = Buffer.from(buffer.subarray(offset + 16, offset + size));
        offset += (size + 3) & ~3;
        if (type === NLMSG_ERROR) {
          open.delete(sequence);
          const errno = -payload.readInt32LE(0);
          if (errno !== 0) failure ??= syscallError('netlink', errno);
        } else if (type === NLMSG_DONE) open.delete(sequence);
        else answers.push({ type, payload });
      }
    }
    if (failure) throw failure;
    return answers;
  }
}

function pack({ type, flags, body }: Message, sequence: number): Buffer {
  const header = Buffer.alloc(16);
  const isDump = (flags & NLM_F_DUMP) === NLM_F_DUMP;
  header.writeUInt32LE(16 + body.length, 0);
  header.writeUInt16LE(type, 4);
  header.writeUInt16LE(NLM_F_REQUEST | (isDump ? 0 : NLM_F_ACK) | flags, 6);
  header.writeUInt32LE(sequence, 8);
  return Buffer.concat([header, body, Buffer.alloc(-body.length & 3)]);
}

function newLink(flags: number, header: Buffer, attributes: readonly Buffer[]): Message {
  return { type: RTM.newLink, flags, body: Buffer.concat([header, ...attributes]) };
}

function newAddress(index: number, ip: string, prefixLength: number): Message {
  const header = Buffer.alloc(8);
  header[0] = AF_INET;
  header[1] = prefixLength;
  header.writeUInt32LE(index, 4);
  const bytes = ipv4Bytes(ip);
  const host = prefixLength >= 31 ? 0 : 0xffff_ffff >>> prefixLength;
  const broadcast = Buffer.alloc(4);
  broadcast.writeUInt32BE((bytes.readUInt32BE(0) | host) >>> 0);
  const attributes = [attribute(IFA.local, bytes), attribute(IFA.address, bytes), attribute(IFA.broadcast, broadcast)];
  return { type: RTM.newAddress, flags: NLM_F_CREATE | NLM_F_EXCL, body: Buffer.concat([header, ...attributes]) };
}

function defaultRoute(index: number, gateway: string): Message {
  const header = Buffer.alloc(12);
  header[0] = AF_INET;
  header[4] = 254; // main table
  header[5] = 3; // RTPROT_BOOT
  header[7] = 1; // unicast
  return { type: RTM.newRoute, flags: NLM_F_CREATE | NLM_F_EXCL, body: Buffer.concat([header, attribute(RTA.gateway, ipv4Bytes(gateway)), u32(RTA.oif, index)]) };
}

function linkHeader(index: number, up: boolean): Buffer {
  const header = Buffer.alloc(16);
  header.writeInt32LE(index, 4);
  if (up) {
    header.writeUInt32LE(IFF_UP, 8);
    header.writeUInt32LE(IFF_UP, 12);
  }
  return header;
}

function attribute(type: number, value: Buffer): Buffer {
  const header = Buffer.alloc(4);
  header.writeUInt16LE(4 + value.length, 0);
  header.writeUInt16LE(type, 2);
  return Buffer.concat([header, value, Buffer.alloc(-value.length & 3)]);
}

const text = (type: number, value: string): Buffer => attribute(type, Buffer.from(`${value}\0`));
const nested = (type: number, children: readonly Buffer[]): Buffer => attribute(type, Buffer.concat(children));

function u32(type: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return attribute(type, bytes);
}

function* attributesOf(payload: Buffer, offset: number): Generator<readonly [type: number, value: Buffer]> {
  while (offset + 4 <= payload.length) {
    const length = payload.readUInt16LE(offset);
    if (length < 4) return;
    yield [payload.readUInt16LE(offset + 2), payload.subarray(offset + 4, offset + length)];
    offset += (length + 3) & ~3;
  }
}

function parseLink(payload: Buffer): LinkInfo {
  let name = '';
  let mtu = 0;
  for (const [type, value] of attributesOf(payload, 16)) {
    if (type === IFLA.name) name = value.toString('latin1', 0, value.length - 1);
    else if (type === IFLA.mtu) mtu = value.readUInt32LE(0);
  }
  return { index: payload.readInt32LE(4), name, mtu };
}

function parseAddress(payload: Buffer): AddressInfo[] {
  for (const [type, value] of attributesOf(payload, 8)) {
    if (type === IFA.local) return [{ linkIndex: payload.readUInt32LE(4), address: [...value].join('.'), prefixLength: payload[1] ?? 32 }];
  }
  return [];
}

function ipv4Bytes(ip: string): Buffer {
  return Buffer.from(ip.split('.').map(Number));
}
