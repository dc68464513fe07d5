/**
 * Receives a few small files from a client (FileSync.DiffCopy) into memory: Dockerfiles and ignore files. Whatever else
 * may be at their paths, as links and directories, is left to receive-tree.ts, which needs the disk for it. What the
 * client sends is not trusted, as there.
 */
import { invalid, isEngineError } from '../../errors/engine-error.js';
import type { CountBytes } from '../../ports/build.js';
import { kindOf, PathOrder } from './file-stat.js';
import type { MessageCall } from './grpc-client.js';
import { encode } from './grpc-messages.js';
import { JoinedPieces } from './joined-pieces.js';
import { readPiece, requestPacket } from './packets.js';
import { readPacket } from './read-packet.js';
import { Packet_Type, PacketSchema, type Packet, type Stat } from './proto/gen/session_pb.js';

export interface SmallFilesOrder {
  readonly call: MessageCall;
  /** Clean, and relative. */
  readonly paths: ReadonlySet<string>;
  /** A longer file is left to the other way. */
  readonly maxBytes: number;
  /** Hears of all messages of the client. */
  readonly bytes: CountBytes;
}

/**
 * Resolves with the files that are there; undefined when something else is, or a file is too long.
 * @throws EngineError for what the client does wrong, and for its own error.
 */
export async function receiveSmallFiles(order: SmallFilesOrder): Promise<ReadonlyMap<string, Buffer> | undefined> {
  try {
    return await new SmallFilesReceiver(order).run();
  } catch (error) {
    order.call.cancel(isEngineError(error) ? error : undefined);
    throw error;
  }
}

interface Arriving {
  readonly path: string;
  readonly bytes: JoinedPieces;
}

class SmallFilesReceiver {
  readonly #descriptions = new PathOrder();
  readonly #arriving = new Map<number, Arriving>();
  readonly #files = new Map<string, Buffer>();
  #count = 0;
  #isListed = false;
  #isFinished = false;

  constructor(private readonly order: SmallFilesOrder) {}

  async run(): Promise<ReadonlyMap<string, Buffer> | undefined> {
    const { call, bytes } = this.order;
    let total = 0;
    for await (const message of call.messages()) {
      bytes((total += message.length));
      if (this.#isFinished) continue;
      if (!(await this.#take(readPiece(message) ?? readPacket(message)))) return undefined;
      if (this.#isListed && this.#arriving.size === 0) await this.#finish();
    }
    if (!this.#isFinished) throw invalid('the client ended the transfer of files before its end');
    return this.#files;
  }

  /** Returns false for what is no small file, nor on the way to one. */
  async #take(packet: Packet | Pick<Packet, 'id' | 'data'>): Promise<boolean> {
    if (!('type' in packet) || packet.type === Packet_Type.DATA) return this.#data(packet);
    if (packet.type === Packet_Type.ERR)
      throw invalid(`error from sender: ${Buffer.from(packet.data).toString('utf8', 0, 4096)}`);
    if (packet.type !== Packet_Type.STAT) throw invalid('the client ended the transfer of files before its end');
    if (this.#isListed) throw invalid('the client sent a file behind the last one');
    if (packet.stat !== undefined) return this.#stat(packet.stat);
    this.#isListed = true;
    return true;
  }

  /** Asks for a file that is wanted. All others are refused, so that there are no more descriptions than paths. */
  async #stat(stat: Stat): Promise<boolean> {
    const { call, paths, maxBytes } = this.order;
    const { path } = stat;
    const id = this.#count++;
    this.#descriptions.next(stat);
    const kind = kindOf(stat.mode);
    if (kind === 'directory') return !paths.has(path) && [...paths].some((wanted) => wanted.startsWith(`${path}/`));
    if (kind !== 'file' || stat.linkname !== '' || !paths.has(path) || stat.size > maxBytes) return false;
    this.#arriving.set(id, { path, bytes: new JoinedPieces() });
    await call.send(requestPacket(id));
    return true;
  }

  #data({ id, data }: Pick<Packet, 'id' | 'data'>): boolean {
    const file = this.#arriving.get(id);
    if (file === undefined) throw invalid(`invalid file request ${id}`);
    file.bytes.push(data);
    if (data.length > 0) return file.bytes.length <= this.order.maxBytes;
    this.#arriving.delete(id);
    this.#files.set(file.path, file.bytes.view());
    return true;
  }

  async #finish(): Promise<void> {
    this.#isFinished = true;
    await this.order.call.send(encode(PacketSchema, { type: Packet_Type.FIN }));
    this.order.call.end();
  }
}
