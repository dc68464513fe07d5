/** The splunk driver: the HTTP event collector. */
import { request as requestHttp, Agent as HttpAgent } from 'node:http';
import { request as requestHttps, Agent as HttpsAgent } from 'node:https';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { internal, messageOf } from '../../errors/engine-error.js';
import type { LoggedContainer } from '../../ports/logs.js';
import { readCertificates } from '../options/certificate-file.js';
import { extraAttributes } from '../options/log-attributes.js';
import { tagOf } from '../options/log-tag.js';
import { badOption, parseBoolean, parseInteger, type LogOptions } from '../options/option-values.js';
import { encodeBatch } from './encode-batch.js';
import { refuseUnknown, type RemoteDriver } from './remote-driver.js';
import type { RemoteRecord } from './remote-sink.js';

const OPTIONS = [
  'splunk-url',
  'splunk-token',
  'splunk-source',
  'splunk-sourcetype',
  'splunk-index',
  'splunk-capath',
  'splunk-caname',
  'splunk-insecureskipverify',
  'splunk-format',
  'splunk-verify-connection',
  'splunk-gzip',
  'splunk-gzip-level',
  'env',
  'env-regex',
  'labels',
  'labels-regex',
  'tag',
];
const PATH = '/services/collector/event/1.0';
/** As in the existing engine, a request has so many messages, and an incomplete one is sent after this time. */
const BATCH_RECORDS = 1000;
const LINGER_MS = 5_000;
const RETRY_MS = 5_000;
const REQUEST_MS = 30_000;
/** So many bytes may wait for a collector that does not answer. */
const QUEUE_BYTES = 8 << 20;
/** So much of a failed answer is shown, and an answer that is longer is not waited for. */
const ANSWER_CHARS = 1024;
const MAX_ANSWER_CHARS = 64 << 10;

const compress = promisify(gzip);

export const splunkDriver: RemoteDriver = {
  validate: (options) => refuseUnknown('splunk', options, OPTIONS),

  async open(container, signal) {
    const { options } = container;
    const collector = await createCollector(options);
    const encode = createEncoder(container);
    if (optional(options, 'splunk-verify-connection', (text) => parseBoolean(text), true))
      await collector.verify(signal);
    return {
      batchRecords: BATCH_RECORDS,
      lingerMs: LINGER_MS,
      queueBytes: QUEUE_BYTES,
      isLossy: true,
      async send(records, signal) {
        const body = await encodeBatch(records, encode, signal);
        if (body.length === 0) return;
        for (;;) {
          try {
            await collector.post(body, signal);
            return;
          } catch (error) {
            await sleep(RETRY_MS, undefined, { signal }).catch(() => {
              throw error;
            });
          }
        }
      },
      close: () => collector.close(),
    };
  },
};

interface Collector {
  /** Checks that the collector answers as one, and throws if it does not. */
  verify(signal: AbortSignal): Promise<void>;
  post(body: Buffer, signal: AbortSignal): Promise<void>;
  close(): void;
}

function optional<T>(options: LogOptions, name: string, parse: (text: string) => T, otherwise: T): T {
  const text = options[name];
  return text === undefined ? otherwise : parse(text);
}

async function createCollector(options: LogOptions): Promise<Collector> {
  const url = parseUrl(options['splunk-url']);
  const token = options['splunk-token'];
  if (token === undefined) throw badOption('splunk: splunk-token is expected');
  const isInsecure = optional(options, 'splunk-insecureskipverify', (text) => parseBoolean(text), false);
  const ca = await optional(options, 'splunk-capath', readCa, undefined);
  const servername = options['splunk-caname'];
  const isCompressed = optional(options, 'splunk-gzip', (text) => parseBoolean(text), false);
  const level = optional(options, 'splunk-gzip-level', parseLevel, -1);
  const isTls = url.protocol === 'https:';
  const agent = isTls
    ? new HttpsAgent({
        keepAlive: true,
        rejectUnauthorized: !isInsecure,
        ...(ca && { ca }),
        ...(servername !== undefined && { servername }),
      })
    : new HttpAgent({ keepAlive: true });

  const exchange = (
    method: string,
    headers: Record<string, string | number>,
    body: Buffer | undefined,
    signal: AbortSignal,
  ): Promise<{ status: number; statusText: string; text: string }> =>
    new Promise((resolve, reject) => {
      const outgoing = (isTls ? requestHttps : requestHttp)(url, { method, headers, agent, signal }, (response) => {
        let text = '';
        const done = (): void =>
          resolve({
            status: response.statusCode ?? 0,
            statusText: response.statusMessage ?? '',
            text: text.slice(0, ANSWER_CHARS),
          });
        response.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
          if (text.length <= MAX_ANSWER_CHARS) return;
          done();
          response.destroy();
        });
        response.once('end', done).on('error', reject);
      });
      // An answer that comes byte by byte does not count as one.
      const timeUp = setTimeout(() => outgoing.destroy(new Error('the collector does not answer')), REQUEST_MS);
      outgoing.once('close', () => clearTimeout(timeUp));
      outgoing.once('error', (error) =>
        reject(
          internal(`${method === 'OPTIONS' ? 'Options' : 'Post'} ${JSON.stringify(url.href)}: ${messageOf(error)}`, {
            cause: error,
          }),
        ),
      );
      outgoing.end(body);
    });

  return {
    async verify(signal) {
      const { status, statusText, text } = await exchange('OPTIONS', {}, undefined, signal);
      if (status !== 200) throw internal(`splunk: failed to verify connection - ${status} ${statusText} - ${text}`);
    },
    async post(plain, signal) {
      const body = isCompressed ? await compress(plain, { level }) : plain;
      const headers = {
        Authorization: `Splunk ${token}`,
        'Content-Length': body.length,
        ...(isCompressed && { 'Content-Encoding': 'gzip' }),
      };
      const { status, statusText, text } = await exchange('POST', headers, body, signal);
      if (status !== 200) throw internal(`splunk: failed to send event - ${status} ${statusText} - ${text}`);
    },
    close: () => agent.destroy(),
  };
}

function parseUrl(text: string | undefined): URL {
  if (text === undefined) throw badOption('splunk: splunk-url is expected');
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    !url ||
    !/^https?:\/\//.test(text) ||
    url.pathname !== '/' ||
    url.search !== '' ||
    url.hash !== '' ||
    url.username !== ''
  ) {
    throw badOption('splunk: expected format scheme://dns_name_or_ip:port for splunk-url');
  }
  url.pathname = PATH;
  return url;
}

async function readCa(path: string): Promise<Buffer> {
  try {
    return await readCertificates(path);
  } catch (error) {
    throw badOption(messageOf(error), error);
  }
}

function parseLevel(text: string): number {
  const level = parseInteger(text);
  if (level < -1 || level > 9)
    throw badOption(`not supported level '${text}' for splunk-gzip-level (supported values between -1 and 9)`);
  return level;
}

/** Returns the JSON of a record's message; '' when the collector would refuse it. */
function createEncoder(container: LoggedContainer): (record: RemoteRecord) => string {
  const { options } = container;
  const tag = options['tag'] === '' ? '' : tagOf(container);
  const attrs = extraAttributes(container);
  const format = options['splunk-format'] ?? 'inline';
  const event = createEvent(format, tag, attrs);
  const named = (key: string, option: string): Record<string, string> =>
    options[option] ? { [key]: options[option] } : {};
  const fixed = furtherFields({
    host: hostname(),
    ...named('source', 'splunk-source'),
    ...named('sourcetype', 'splunk-sourcetype'),
    ...named('index', 'splunk-index'),
  });
  return (record) => {
    const value = event(record);
    if (value === undefined) return '';
    const time = `${record.timeNs / 1_000_000_000n}.${String((record.timeNs / 1000n) % 1_000_000n).padStart(6, '0')}`;
    return `{"event":${value},"time":"${time}"${fixed}}`;
  };
}

/** Returns a function that makes the JSON of an event; undefined for a record that is none. */
function createEvent(
  format: string,
  tag: string,
  attrs: Readonly<Record<string, string>>,
): (record: RemoteRecord) => string | undefined {
  const rest = furtherFields({ ...(tag !== '' && { tag }), ...(Object.keys(attrs).length > 0 && { attrs }) });
  switch (format) {
    case 'inline':
      return ({ line, stream }) => `{"line":${JSON.stringify(line.toString())},"source":"${stream}"${rest}}`;
    case 'json':
      return ({ line, stream }) => `{"line":${asJson(line.toString())},"source":"${stream}"${rest}}`;
    case 'raw': {
      const prefix = [tag, ...Object.entries(attrs).map(([name, value]) => `${name}=${value}`)]
        .filter((part) => part !== '')
        .map((part) => `${part} `)
        .join('');
      return ({ line }) => (line.toString().trim() === '' ? undefined : JSON.stringify(`${prefix}${line.toString()}`));
    }
    default:
      throw badOption(`Unknown format specified ${format}, supported formats are inline, json and raw`);
  }
}

/** Returns fields for the end of an object that has others. */
function furtherFields(fields: Readonly<Record<string, unknown>>): string {
  const text = JSON.stringify(fields).slice(1, -1);
  return text === '' ? '' : `,${text}`;
}

/**
 * Returns JSON as it was printed, so that no number becomes another one, and nothing that is nested too deeply takes
 * the whole request with it; a string of what is none.
 */
function asJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}
