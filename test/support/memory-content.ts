/** Stands for the content store of the supervisor. */
import { notFound } from '../../src/errors/engine-error.js';
import type { Content, NewBlob } from '../../src/ports/content.js';
import type { Digest } from '../../src/ports/storage.js';

/** Collects as containerd does: what one lease holds stays, and what labels lead to from there. */
export class MemoryContent implements Content {
  readonly blobs = new Map<Digest, { readonly bytes: Buffer; labels: Readonly<Record<string, string>> }>();
  readonly leased = new Set<Digest>();
  /** Blobs of writes that broke off. */
  readonly unfinished = new Set<Digest>();
  failure: Error | undefined;

  async sizeOf(digest: Digest): Promise<number | undefined> {
    return this.blobs.get(digest)?.bytes.length;
  }

  async labelsOf(digest: Digest): Promise<Readonly<Record<string, string>>> {
    return this.blobs.get(digest)?.labels ?? {};
  }

  async *read(digest: Digest): AsyncGenerator<Buffer> {
    const blob = this.blobs.get(digest);
    if (!blob) throw notFound(digest);
    yield blob.bytes;
  }

  async write(_lease: string, { digest, labels = {} }: NewBlob, from: (at: number) => AsyncIterable<Buffer>) {
    if (this.failure) throw this.failure;
    const before = this.blobs.get(digest);
    const chunks: Buffer[] = [];
    if (!before) for await (const chunk of from(0)) chunks.push(chunk);
    this.blobs.set(digest, {
      bytes: before?.bytes ?? Buffer.concat(chunks),
      labels: { ...before?.labels, ...labels },
    });
    this.leased.add(digest);
  }

  /** The bytes are wanted from the caller. */
  async offer(): Promise<void> {}

  async unlabel(digest: Digest, names: readonly string[]): Promise<void> {
    const blob = this.blobs.get(digest);
    const left = Object.entries(blob?.labels ?? {}).filter(([name]) => !names.includes(name));
    if (blob) blob.labels = Object.fromEntries(left);
  }

  async held(): Promise<readonly Digest[]> {
    return [...this.leased];
  }

  async letGo(_lease: string, digests: readonly Digest[]): Promise<void> {
    for (const digest of digests) this.leased.delete(digest);
  }

  async letGoUnfinished(): Promise<boolean> {
    const had = this.unfinished.size > 0;
    this.unfinished.clear();
    return had;
  }

  async collect(): Promise<void> {
    const stays = new Set([...this.leased, ...this.unfinished]);
    for (const digest of stays)
      for (const next of Object.values(this.blobs.get(digest)?.labels ?? {})) stays.add(next as Digest);
    for (const digest of this.blobs.keys()) if (!stays.has(digest)) this.blobs.delete(digest);
  }
}
