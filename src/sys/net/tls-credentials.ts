/** The files that a TLS listener shows and trusts are read whole here and checked before any of it is used. */
import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext, type SecureContextOptions, type SecureVersion } from 'node:tls';
import { invalid, messageOf } from '../../errors/engine-error.js';

export interface TlsFiles {
  readonly cert: string;
  readonly key: string;
  /** Authorities whose clients get in; undefined: every client does. */
  readonly ca: string | undefined;
  readonly minVersion: SecureVersion;
}

export interface TlsCredentials {
  readonly context: SecureContextOptions;
  /** Tells one certificate from another in logs: `CN=host, valid until …, SHA-256 …`. */
  readonly summary: string;
  readonly warnings: readonly string[];
}

/** SSL_OP_NO_TICKET: a resumed session would keep what was verified against files that have been replaced since. */
const NO_TICKETS = 1 << 14;
const PEM_BEGIN = '-----BEGIN CERTIFICATE-----';
const PEM_END = '-----END CERTIFICATE-----';

/** Reads some kilobytes synchronously. @throws EngineError invalid naming the option and the file. */
export function readTlsCredentials(files: TlsFiles, now = Date.now()): TlsCredentials {
  const cert = readOption('tlscert', files.cert);
  const chain = certificates('tlscert', files.cert, cert);
  const [own] = chain;
  if (own === undefined) throw bad('tlscert', files.cert, 'holds no PEM certificate');
  const keyText = readOption('tlskey', files.key);
  const key = privateKey(files.key, keyText);
  if (!own.checkPrivateKey(key))
    throw bad('tlskey', files.key, `is not the key of the certificate in tlscert ${files.cert}`);
  const ca = files.ca === undefined ? undefined : readOption('tlscacert', files.ca);
  const authorities = files.ca === undefined || ca === undefined ? [] : certificates('tlscacert', files.ca, ca);
  if (files.ca !== undefined && authorities.length === 0) throw bad('tlscacert', files.ca, 'holds no PEM certificate');
  const context: SecureContextOptions = {
    cert,
    key: keyText,
    ...(ca === undefined ? {} : { ca }),
    minVersion: files.minVersion,
    secureOptions: NO_TICKETS,
    // OpenSSL 3 allows what the first versions of TLS need only below its usual level of security.
    ...(files.minVersion === 'TLSv1' || files.minVersion === 'TLSv1.1' ? { ciphers: 'DEFAULT@SECLEVEL=0' } : {}),
  };
  try {
    createSecureContext(context);
  } catch (cause) {
    throw bad('tlscert', files.cert, `cannot be used: ${messageOf(cause)}`);
  }
  const expired = [
    { option: 'tlscert', path: files.cert, certificate: own },
    ...authorities.map((certificate) => ({ option: 'tlscacert', path: files.ca, certificate })),
  ];
  return {
    context,
    summary: summaryOf(own, authorities),
    warnings: expired
      .filter(({ certificate }) => Date.parse(certificate.validTo) < now)
      .map(({ option, path, certificate }) => `${option} ${path}: the certificate expired on ${certificate.validTo}`),
  };
}

function summaryOf(own: X509Certificate, authorities: readonly X509Certificate[]): string {
  const fingerprints = authorities.map((one) => one.fingerprint256).join(', ');
  return [
    `${own.subject.replaceAll('\n', ', ')}, valid until ${own.validTo}, SHA-256 ${own.fingerprint256}`,
    ...(authorities.length === 0 ? [] : [`authorities: ${fingerprints}`]),
  ].join('; ');
}

function readOption(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw bad(option, path, `cannot be read: ${messageOf(cause)}`);
  }
}

function pemBlocks(text: string): string[] {
  const blocks: string[] = [];
  for (let start = text.indexOf(PEM_BEGIN); start >= 0;) {
    const end = text.indexOf(PEM_END, start);
    if (end < 0) break;
    blocks.push(text.slice(start, end + PEM_END.length));
    start = text.indexOf(PEM_BEGIN, end);
  }
  return blocks;
}

function certificates(option: string, path: string, text: string): X509Certificate[] {
  return pemBlocks(text).map((pem) => {
    try {
      return new X509Certificate(pem);
    } catch (cause) {
      throw bad(option, path, `holds a damaged certificate: ${messageOf(cause)}`);
    }
  });
}

function privateKey(path: string, text: string): KeyObject {
  // Asked for a passphrase nobody answers a daemon.
  if (/-----BEGIN ENCRYPTED|Proc-Type: 4,ENCRYPTED/.test(text))
    throw bad('tlskey', path, 'is encrypted: it has to be a key without a passphrase');
  try {
    return createPrivateKey(text);
  } catch (cause) {
    throw bad('tlskey', path, `is not a PEM private key: ${messageOf(cause)}`);
  }
}

function bad(option: string, path: string, what: string): Error {
  return invalid(`${option} ${path} ${what}`, { code: 'TLS_FILES', details: { option } });
}
