/** The journald driver: the journal's native protocol, one datagram an entry. */
import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { internal, messageOf } from '../../errors/engine-error.js';
import { UnixDatagram } from '../../sys/net/unix-datagram.js';
import { extraAttributes } from '../options/log-attributes.js';
import { tagOf } from '../options/log-tag.js';
import { formatTime } from '../record-time.js';
import { ATTRIBUTE_OPTIONS, refuseUnknown, type RemoteDriver } from './remote-driver.js';
import { DEFAULT_BATCH, type RemoteRecord } from './remote-sink.js';

const SOCKET = '/run/systemd/journal/socket';
const PRIORITY = { stderr: '3', stdout: '6' } as const;

export const journaldDriver: RemoteDriver = {
  options: ATTRIBUTE_OPTIONS,
  validate: (options) => refuseUnknown('journald', options, ATTRIBUTE_OPTIONS),

  async open(container) {
    if (statSync(SOCKET, { throwIfNoEntry: false }) === undefined)
      throw internal('journald is not enabled on this host');
    const tag = tagOf(container);
    const fixed = Buffer.concat(
      Object.entries({
        CONTAINER_ID: container.id.slice(0, 12),
        CONTAINER_ID_FULL: container.id,
        CONTAINER_NAME: container.name,
        CONTAINER_TAG: tag,
        IMAGE_NAME: container.imageName,
        SYSLOG_IDENTIFIER: tag,
        // Readers find lines that were lost or came twice by these two.
        CONTAINER_LOG_EPOCH: randomBytes(32).toString('hex'),
        ...Object.fromEntries(
          Object.entries(extraAttributes(container)).flatMap(([name, value]) =>
            fieldName(name) === '' ? [] : [[fieldName(name), value]],
          ),
        ),
      }).map(([name, value]) => field(name, value)),
    );
    let socket = UnixDatagram.open(SOCKET);
    let ordinal = 0;
    return {
      ...DEFAULT_BATCH,
      batchRecords: 1,
      async send(records, signal) {
        for (const record of records) {
          ordinal += 1;
          const entry = Buffer.concat([fixed, field('CONTAINER_LOG_ORDINAL', String(ordinal)), ...fieldsOf(record)]);
          try {
            await socket.send(entry, signal);
          } catch (error) {
            signal.throwIfAborted();
            // A journal that was restarted has a new socket, so this one is closed.
            socket.close();
            socket = reopen(error);
            await socket.send(entry, signal);
          }
        }
      },
      close: () => socket.close(),
    };
  },
};

function reopen(cause: unknown): UnixDatagram {
  try {
    return UnixDatagram.open(SOCKET);
  } catch (error) {
    throw internal(`the journal cannot be reached: ${messageOf(error)}`, { cause });
  }
}

function fieldsOf({ stream, timeNs, line, piece }: RemoteRecord): Buffer[] {
  return [
    field('PRIORITY', PRIORITY[stream]),
    field('MESSAGE', line),
    field('SYSLOG_TIMESTAMP', formatTime(timeNs)),
    ...(piece
      ? [
          field('CONTAINER_PARTIAL_ID', piece.id),
          field('CONTAINER_PARTIAL_ORDINAL', String(piece.ordinal)),
          field('CONTAINER_PARTIAL_LAST', String(piece.isLast)),
        ]
      : []),
    ...(piece && !piece.isLast ? [field('CONTAINER_PARTIAL_MESSAGE', 'true')] : []),
  ];
}

/**
 * Encodes a field as `NAME`, newline, 64-bit length, value, newline, which suits every value (systemd's
 * JOURNAL_NATIVE_PROTOCOL).
 */
function field(name: string, value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  const head = Buffer.alloc(name.length + 1 + 8);
  head.write(`${name}\n`, 'latin1');
  head.writeBigUInt64LE(BigInt(bytes.length), name.length + 1);
  return Buffer.concat([head, bytes, Buffer.from('\n')]);
}

/** Turns a name into upper-case letters, digits and underscores, and drops underscores at its beginning. */
function fieldName(name: string): string {
  return name
    .toUpperCase()
    .replaceAll(/[^A-Z0-9]/g, '_')
    .replace(/^_+/, '');
}
