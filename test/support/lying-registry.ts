/** A registry that says what a test wants it to say, for everything that no honest registry does. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { BuiltImage } from './image-builder.js';

export interface LyingRegistry {
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** Paths asked for, in order: `GET /v2/a/b/manifests/tag`. */
  readonly requests: readonly string[];
  stop(): Promise<void>;
}

/** Answers one request to the registry. Return false to leave it to the honest answer. */
export type Lie = (request: { readonly method: string; readonly path: string }, response: ServerResponse) => boolean;

/** Serves `image` under every repository and tag, except where `lie` takes over. */
export async function startLyingRegistry(image: BuiltImage, lie: Lie): Promise<LyingRegistry> {
  const blobs = new Map<string, Buffer>([
    [image.id, image.config],
    ...image.layers.map((layer): [string, Buffer] => [layer.digest, layer.blob]),
  ]);
  const requests: string[] = [];
  const server = createServer((incoming, response) => {
    const { method = 'GET', url = '/' } = incoming;
    requests.push(`${method} ${url}`);
    if (lie({ method, path: url }, response)) return;
    const blob = blobs.get(/\/blobs\/(sha256:[0-9a-f]{64})$/.exec(url)?.[1] ?? '');
    const body = /\/manifests\/[^/]+$/.test(url) ? image.manifest : blob;
    if (url === '/v2/') response.writeHead(200).end('{}');
    else if (body === undefined)
      response
        .writeHead(404, { 'Content-Type': 'application/json' })
        .end('{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}');
    else {
      const isManifest = body === image.manifest;
      const headers = {
        'Content-Length': body.length,
        'Content-Type': isManifest ? image.mediaType : 'application/octet-stream',
        ...(isManifest ? { 'Docker-Content-Digest': image.digest } : {}),
      };
      response.writeHead(200, headers).end(method === 'HEAD' ? undefined : body);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    host: `127.0.0.1:${port}`,
    requests,
    stop: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
