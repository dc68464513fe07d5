/** Reads and writes messages on a stream, each after its length (RFC 1035, 4.2.2). */

export function frame(message: Buffer): Buffer {
  const head = Buffer.alloc(2);
  head.writeUInt16BE(message.length);
  return Buffer.concat([head, message]);
}

export class Frames {
  #rest = Buffer.alloc(0);

  /** Returns the messages that are complete now. At most one unfinished message is kept. */
  take(chunk: Buffer): Buffer[] {
    let data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const messages: Buffer[] = [];
    while (data.length >= 2 && data.length >= 2 + data.readUInt16BE(0)) {
      const end = 2 + data.readUInt16BE(0);
      messages.push(data.subarray(2, end));
      data = data.subarray(end);
    }
    this.#rest = Buffer.from(data);
    return messages;
  }
}
