/** Certificate authorities and certificates for tests, made by openssl. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface CertificateOptions {
  readonly usage?: 'clientAuth' | 'serverAuth';
  readonly isExpired?: boolean;
  /** subjectAltName, such as `IP:127.0.0.1`. */
  readonly altNames?: string;
}

const openssl = (...args: readonly string[]): void =>
  void execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] });
const EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** OpenSSL takes a negative number of days up to 3.3, and dates from 3.4 on. */
function signExpired(sign: (...validity: readonly string[]) => void): void {
  try {
    sign('-not_before', '20200101000000Z', '-not_after', '20200102000000Z');
  } catch {
    sign('-days', '-1');
  }
}

export class Authority {
  /** Its own certificate. */
  readonly cert: string;
  readonly #dir: string;
  readonly #name: string;
  #issued = 0;

  /** @param dir where its files go. */
  constructor(dir: string, name: string) {
    this.#dir = dir;
    this.#name = name;
    this.cert = join(dir, `${name}.pem`);
    openssl(
      'req',
      '-x509',
      ...EC_KEY,
      '-days',
      '30',
      '-subj',
      `/CN=${name}`,
      '-addext',
      'basicConstraints=critical,CA:TRUE',
      '-keyout',
      this.#key,
      '-out',
      this.cert,
    );
  }

  get #key(): string {
    return join(this.#dir, `${this.#name}.key`);
  }

  issue(
    commonName: string,
    { usage = 'clientAuth', isExpired = false, altNames }: CertificateOptions = {},
  ): Certificate {
    const base = join(this.#dir, `${this.#name}-${++this.#issued}`);
    const extensions = `${base}.ext`;
    writeFileSync(
      extensions,
      `extendedKeyUsage=${usage}\n${altNames === undefined ? '' : `subjectAltName=${altNames}\n`}`,
    );
    openssl('req', ...EC_KEY, '-subj', `/CN=${commonName}`, '-keyout', `${base}.key`, '-out', `${base}.csr`);
    const sign = (...validity: readonly string[]): void => {
      const authority = ['-CA', this.cert, '-CAkey', this.#key, '-CAcreateserial'];
      const files = ['-in', `${base}.csr`, '-extfile', extensions, '-out', `${base}.pem`];
      openssl('x509', '-req', ...authority, ...files, ...validity);
    };
    if (isExpired) signExpired(sign);
    else sign('-days', '30');
    return { cert: `${base}.pem`, key: `${base}.key` };
  }

  /** A TLS server on loopback needs these. */
  issueServer(): Certificate {
    return this.issue('localhost', { usage: 'serverAuth', altNames: 'DNS:localhost,IP:127.0.0.1,IP:::1' });
  }
}

/** Returns the flags by which engined and the docker CLI prove who they are, and trust peers of an authority only. */
export function tlsFlags(authority: string, { cert, key }: Certificate): string[] {
  return ['--tlsverify', '--tlscacert', authority, '--tlscert', cert, '--tlskey', key];
}
