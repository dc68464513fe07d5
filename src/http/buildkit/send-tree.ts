/** Sends a directory to a client that keeps its files (output of the type local). */
import { createReadStream, type BigIntStats } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import { goModeOf, kindOfFile } from './file-stat.js';
import { decode, encode } from './grpc-messages.js';
import type { MessageCall } from './grpc-client.js';
import { Packet_Type, PacketSchema } from './proto/gen/session_pb.js';
import type { Session } from './session.js';

const CHUNK_BYTES = 32 * 1024;
const NS_PER_SECOND = 1_000_000_000n;

export interface SendOptions {
  readonly metadata: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Name of a directory that the client makes for the files; absent: they come into its own. */
  readonly below?: string | undefined;
  /** The time of all files, in seconds since 1970; absent: each has its own. */
  readonly mtimeSeconds?: number | undefined;
  /** Called with the path of each file that is no directory; what it throws ends the transfer. */
  readonly claim?: ((path: string) => void) | undefined;
  /** Called with the number of bytes that have been sent so far. */
  readonly sent?: (total: number) => void;
}

/** @param root is a directory that nobody changes meanwhile. @throws EngineError with the client's words. */
export async function sendTree({ client }: Session, root: string, options: SendOptions): Promise<void> {
  const { metadata, signal } = options;
  const call = client.open('/moby.filesync.v1.FileSend/DiffCopy', {
    metadata,
    ...(signal !== undefined && { signal }),
  });
  const sender = new TreeSender(root, call, options);
  const listing = sender.list().catch((error: unknown) => sender.fail(error));
  try {
    for await (const message of call.messages()) sender.take(message);
    await sender.done();
  } catch (error) {
    throw sender.failure ?? error;
  } finally {
    call.end();
    await listing;
  }
}

class TreeSender {
  failure: unknown;
  readonly #root: string;
  readonly #call: MessageCall;
  readonly #options: SendOptions;
  /** Regular files by the number of their description; each may be asked for once. */
  readonly #files = new Map<number, string>();
  /** The first names of files with several, as they were described, by device and inode. */
  readonly #names = new Map<string, string>();
  #count = 0;
  #bytes = 0;
  #sending: Promise<void> = Promise.resolve();
  #isFinished = false;

  constructor(root: string, call: MessageCall, options: SendOptions) {
    this.#root = root;
    this.#call = call;
    this.#options = options;
  }

  fail(error: unknown): void {
    this.failure ??= error;
    this.#call.cancel();
  }

  async list(): Promise<void> {
    if (this.#options.below !== undefined) await this.#describe('', await lstat(this.#root, { bigint: true }));
    await this.#listDirectory('');
    await this.#call.send(encode(PacketSchema, { type: Packet_Type.STAT }));
  }

  /** Resolves when all is sent. @throws what went wrong. */
  async done(): Promise<void> {
    await this.#sending;
    if (!this.#isFinished) throw invalid('the client ended the transfer of files before its end');
  }

  take(message: Buffer): void {
    const packet = decode(PacketSchema, message);
    if (packet.type === Packet_Type.ERR)
      throw invalid(`error from receiver: ${Buffer.from(packet.data).toString('utf8', 0, 4096)}`);
    if (packet.type === Packet_Type.REQ) {
      const path = this.#files.get(packet.id);
      if (path === undefined) throw invalid(`invalid file id ${packet.id}`);
      this.#files.delete(packet.id);
      this.#then(() => this.#file(packet.id, path));
    } else if (packet.type === Packet_Type.FIN && !this.#isFinished) {
      this.#isFinished = true;
      this.#then(async () => {
        await this.#call.send(encode(PacketSchema, { type: Packet_Type.FIN }));
        this.#call.end();
      });
    }
  }

  #then(action: () => Promise<void>): void {
    this.#sending = this.#sending.then(action).catch((error: unknown) => this.fail(error));
  }

  async #listDirectory(directory: string): Promise<void> {
    const names = await readdir(join(this.#root, directory));
    names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    for (const name of names) {
      const path = directory === '' ? name : `${directory}/${name}`;
      const stat = await lstat(join(this.#root, path), { bigint: true });
      await this.#describe(path, stat);
      if (stat.isDirectory()) await this.#listDirectory(path);
    }
  }

  async #describe(path: string, stat: BigIntStats): Promise<void> {
    const { below, mtimeSeconds } = this.#options;
    const kind = kindOfFile(stat);
    // Sockets and devices mean nothing on another machine.
    if (kind === 'other') return;
    if (kind !== 'directory') this.#options.claim?.(path);
    const id = this.#count++;
    const shown = below === undefined ? path : [below, path].filter((part) => part !== '').join('/');
    const twin = kind === 'file' && stat.nlink > 1n ? this.#firstName(stat, shown) : undefined;
    const hasContent = kind === 'file' && twin === undefined;
    if (hasContent) this.#files.set(id, path);
    await this.#call.send(
      encode(PacketSchema, {
        type: Packet_Type.STAT,
        stat: {
          path: shown,
          mode: goModeOf(kind, Number(stat.mode & 0o7777n)),
          uid: Number(stat.uid),
          gid: Number(stat.gid),
          size: hasContent ? stat.size : 0n,
          modTime: mtimeSeconds === undefined ? stat.mtimeNs : BigInt(mtimeSeconds) * NS_PER_SECOND,
          linkname: kind === 'symlink' ? await readlink(join(this.#root, path)) : (twin ?? ''),
        },
      }),
    );
  }

  /** Returns the name under which a file has been described before; undefined when it is the first one. */
  #firstName({ dev, ino }: BigIntStats, name: string): string | undefined {
    const inode = `${dev}:${ino}`;
    const first = this.#names.get(inode);
    if (first === undefined) this.#names.set(inode, name);
    return first;
  }

  async #file(id: number, path: string): Promise<void> {
    for await (const piece of createReadStream(join(this.#root, path), { highWaterMark: CHUNK_BYTES })) {
      const data = piece as Buffer;
      await this.#call.send(encode(PacketSchema, { type: Packet_Type.DATA, id, data }));
      this.#options.sent?.((this.#bytes += data.length));
    }
    await this.#call.send(encode(PacketSchema, { type: Packet_Type.DATA, id }));
  }
}
