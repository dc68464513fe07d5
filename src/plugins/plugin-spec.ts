/** Reads the files that say where a plugin listens (docs/authorization.md, "Where plugins are found"). */
import { invalid } from '../errors/engine-error.js';

export interface PluginTls {
  /** True if any certificate of the plugin is accepted. */
  readonly insecureSkipVerify: boolean;
  /** Paths of PEM files; '' for none. Without a CA the machine's own authorities count. */
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
}

export type PluginAddress =
  /** A pinned one is in a directory that the plugin can change: a link there leads nowhere. */
  | { readonly kind: 'unix'; readonly path: string; readonly isPinned?: boolean }
  | { readonly kind: 'http'; readonly host: string; readonly port: number }
  | { readonly kind: 'https'; readonly host: string; readonly port: number; readonly tls: PluginTls };

const DEFAULT_TLS: PluginTls = { insecureSkipVerify: false, caFile: '', certFile: '', keyFile: '' };

/**
 * Reads a `.spec` file, which only holds an address such as `unix:///run/p.sock` or `tcp://127.0.0.1:8080`. @throws
 * EngineError invalid.
 */
export function parseSpecFile(path: string, content: string): PluginAddress {
  return parseAddress(path, content.trim(), undefined);
}

/**
 * Reads a `.json` file: `{"Name", "Addr", "TLSConfig": {"InsecureSkipVerify", "CAFile", "CertFile", "KeyFile"}}`.
 * @throws EngineError invalid.
 */
export function parseJsonFile(path: string, content: string): PluginAddress {
  let file: unknown;
  try {
    file = JSON.parse(content);
  } catch (cause) {
    throw invalid(`plugin file ${path} is not JSON`, { cause });
  }
  if (!isObject(file)) throw invalid(`plugin file ${path}: must be an object`);
  const { Addr, TLSConfig } = file;
  if (typeof Addr !== 'string') throw invalid(`plugin file ${path}: Addr must be a string`);
  return parseAddress(
    path,
    Addr,
    TLSConfig === undefined || TLSConfig === null ? undefined : parseTls(path, TLSConfig),
  );
}

function parseTls(path: string, value: unknown): PluginTls {
  if (!isObject(value)) throw invalid(`plugin file ${path}: TLSConfig must be an object`);
  const { InsecureSkipVerify = false } = value;
  if (typeof InsecureSkipVerify !== 'boolean')
    throw invalid(`plugin file ${path}: TLSConfig.InsecureSkipVerify must be true or false`);
  const [caFile, certFile, keyFile] = ['CAFile', 'CertFile', 'KeyFile'].map((name) => {
    const text = value[name] ?? '';
    if (typeof text !== 'string') throw invalid(`plugin file ${path}: TLSConfig.${name} must be a string`);
    return text;
  });
  return {
    insecureSkipVerify: InsecureSkipVerify,
    caFile: caFile ?? '',
    certFile: certFile ?? '',
    keyFile: keyFile ?? '',
  };
}

/** Parses an address. With TLS settings, `tcp` means https. A path in the address is not used, as in other engines. */
function parseAddress(path: string, text: string, tls: PluginTls | undefined): PluginAddress {
  if (text.startsWith('unix://')) {
    const socket = text.slice('unix://'.length);
    if (!socket.startsWith('/')) throw invalid(`plugin file ${path}: ${JSON.stringify(text)} has no absolute path`);
    return { kind: 'unix', path: socket };
  }
  const [, scheme, rest] = /^(tcp|http|https):\/\/(.+)$/.exec(text) ?? [];
  const url = scheme === undefined || !URL.canParse(`http://${rest}`) ? undefined : new URL(`http://${rest}`);
  if (url === undefined)
    throw invalid(
      `plugin file ${path}: ${JSON.stringify(text)} is no address: must be unix://, tcp://, http:// or https://`,
    );
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (scheme !== 'https' && tls === undefined) return { kind: 'http', host, port: Number(url.port || 80) };
  return { kind: 'https', host, port: Number(url.port || 443), tls: tls ?? DEFAULT_TLS };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
