/** A server that serves blobs and manifests from memory and misbehaves as a test tells it to. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { BuiltImage } from './image-builder.js';

export interface FaultyServer {
  /** `127.0.0.1:port`. */
  readonly host: string;
  readonly url: string;
  /** `METHOD path` of every request, in order. */
  readonly requests: readonly string[];
  /** Headers of the requests, in the same order. */
  readonly headers: readonly IncomingMessage['headers'][];
  /** The answers to GETs: body and content type by path. */
  readonly documents: Map<
    string,
    { readonly body: Buffer; readonly type?: string; readonly headers?: Record<string, string> }
  >;
  /** Sees every request first; true when it took it over. */
  intercept: ((request: IncomingMessage, response: ServerResponse, nth: number) => boolean) | undefined;
  /** Bytes of document bodies that were sent, by path. */
  readonly served: Map<string, number>;
  stop(): Promise<void>;
}

/** Listens on a free port of loopback, or of the given address too. Ranges are honoured. */
export async function startFaultyServer(address = '127.0.0.1'): Promise<FaultyServer> {
  const requests: string[] = [];
  const headers: IncomingMessage['headers'][] = [];
  const counts = new Map<string, number>();
  const served = new Map<string, number>();
  const documents: FaultyServer['documents'] = new Map();
  const server = createServer((request, response) => {
    const path = request.url ?? '/';
    requests.push(`${request.method} ${path}`);
    headers.push(request.headers);
    const nth = (counts.get(path) ?? 0) + 1;
    counts.set(path, nth);
    if (faulty.intercept?.(request, response, nth)) return;
    const document = documents.get(path);
    if (path === '/v2/') {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      return;
    }
    if (!document) {
      const errors = [
        { code: path.includes('/manifests/') ? 'MANIFEST_UNKNOWN' : 'BLOB_UNKNOWN', message: 'not here' },
      ];
      response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ errors }));
      return;
    }
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    const body = document.body.subarray(from);
    const range =
      from > 0 ? { 'content-range': `bytes ${from}-${document.body.length - 1}/${document.body.length}` } : {};
    response.writeHead(from > 0 ? 206 : 200, {
      'content-type': document.type ?? 'application/octet-stream',
      'content-length': body.length,
      ...range,
      ...document.headers,
    });
    if (request.method !== 'HEAD') served.set(path, (served.get(path) ?? 0) + body.length);
    response.end(request.method === 'HEAD' ? undefined : body);
  });
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const faulty: FaultyServer = {
    host,
    url: `http://${host}`,
    requests,
    headers,
    documents,
    intercept: undefined,
    served,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return faulty;
}

/** Has an image answered for by its tag and by its digest. */
export function publishImage(server: FaultyServer, image: BuiltImage, name: string, tag = 'latest'): void {
  const manifest = { body: image.manifest, type: image.mediaType, headers: { 'docker-content-digest': image.digest } };
  server.documents.set(`/v2/${name}/manifests/${tag}`, manifest);
  server.documents.set(`/v2/${name}/manifests/${image.digest}`, manifest);
  server.documents.set(`/v2/${name}/blobs/${image.id}`, { body: image.config });
  for (const layer of image.layers) server.documents.set(`/v2/${name}/blobs/${layer.digest}`, { body: layer.blob });
}
