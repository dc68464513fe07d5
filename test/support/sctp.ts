/** SCTP by hand, for kernels that translate it but have no sockets for it: packets are sent and seen as raw ones. */
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { endProcess, startInside } from './host-networks.js';

/** Marks the packet, as its first sequence number. */
const MARK = Buffer.from('ENGD');
const MARK_OFFSET = 28;
const WAIT_MS = 1500;

/** CRC-32C, as SCTP has it. */
function checksum(data: Buffer): number {
  let crc = 0xffff_ffff;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f6_3b78 : 0);
  }
  return ~crc >>> 0;
}

/** The packet that asks for a connection. */
function initPacket(port: number): Buffer {
  // The kernel knows a while which connection it belonged to.
  const packet = Buffer.alloc(32);
  packet.writeUInt16BE(randomInt(30_000, 60_000), 0);
  packet.writeUInt16BE(port, 2);
  packet[12] = 1;
  packet.writeUInt16BE(20, 14);
  packet.writeUInt32BE(0x1234_5678, 16);
  packet.writeUInt32BE(65_536, 20);
  packet.writeUInt16BE(1, 24);
  packet.writeUInt16BE(1, 26);
  MARK.copy(packet, MARK_OFFSET);
  packet.writeUInt32LE(checksum(packet), 8);
  return packet;
}

/**
 * The port that the first packet of a connection from one namespace has when it arrives in the other; undefined if it
 * does not.
 */
export async function arrivingPort(from: string, to: string, host: string, port: number): Promise<number | undefined> {
  const family = host.includes(':') ? 6 : 4;
  const receiver = startInside(to, 'socat', '-u', `IP${family}-RECV:132`, '-');
  const chunks: Buffer[] = [];
  receiver.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  try {
    for (const end = Date.now() + WAIT_MS; Date.now() < end;) {
      execFileSync(
        'nsenter',
        [`--net=${from}`, 'socat', '-u', '-', `IP${family}-SENDTO:${family === 6 ? `[${host}]` : host}:132`],
        { input: initPacket(port) },
      );
      await sleep(50);
      const seen = Buffer.concat(chunks);
      const mark = seen.indexOf(MARK);
      if (mark >= MARK_OFFSET) return seen.readUInt16BE(mark - MARK_OFFSET + 2);
    }
    return undefined;
  } finally {
    await endProcess(receiver);
  }
}
