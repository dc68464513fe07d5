/** The certificates that this machine trusts. */
import { readFileSync, statSync } from 'node:fs';
import { rootCertificates } from 'node:tls';

const BUNDLES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt', '/etc/ssl/cert.pem'];

export interface TrustedRoots {
  readonly certificates: readonly string[];
  /** Changes when the certificates may have changed. */
  readonly version: string;
}

let known: TrustedRoots | undefined;

/**
 * Returns the machine's own trust store, so that operators add a CA in the usual place; else the one that is compiled
 * into Node. It is read again when its file has changed: so a CA that is added or removed counts for the next
 * connection.
 */
export function trustedRoots(): TrustedRoots {
  for (const path of [process.env['SSL_CERT_FILE'], ...BUNDLES]) {
    if (path === undefined || path === '') continue;
    try {
      const { mtimeMs, size, ino } = statSync(path);
      const version = JSON.stringify([path, mtimeMs, size, ino]);
      if (known?.version !== version) known = { version, certificates: [readFileSync(path, 'utf8')] };
      return known;
    } catch {
      // This distribution keeps them elsewhere, so the next place is tried.
    }
  }
  return { version: 'compiled in', certificates: rootCertificates };
}
