/** Files of containers: copying in and out, and the export. */
import type { Readable } from 'node:stream';
import { createDeflate, createGzip } from 'node:zlib';
import type { ContainerArchives } from '../../actors/container/mounts/archives.js';
import { invalid, isEngineError } from '../../errors/engine-error.js';
import type { TarOutput } from '../../ports/archives.js';
import { closeFd } from '../../sys/files/fd.js';
import { pathStatHeader } from '../api/path-stat.js';
import type { Exchange, Headers } from '../exchange.js';
import { pump, type ResponseStream } from '../response-stream.js';
import { route, type Route } from '../route.js';

/** Errors of a socket whose client has left. */
const LEFT: ReadonlySet<string> = new Set(['EPIPE', 'ECONNRESET']);

/** Reads and writes files of containers. */
export type RoutedArchives = Pick<ContainerArchives, 'stat' | 'read' | 'write' | 'export'>;

export function archiveRoutes(archives: RoutedArchives): Route[] {
  return [
    route(
      'HEAD',
      '/containers/{name...}/archive',
      async (x) => {
        x.sendEmpty(200, pathStatHeader(await archives.stat(x.param('name'), pathOf(x))));
      },
      { upload: 'precedes' },
    ),

    route('GET', '/containers/{name...}/archive', async (x) => {
      const { stat, ...output } = await archives.read(x.param('name'), pathOf(x));
      await sendTar(x, output, 'application/x-tar', pathStatHeader(stat));
    }),

    route(
      'PUT',
      '/containers/{name...}/archive',
      async (x) => {
        const options = {
          noOverwriteDirNonDir: x.query.flag('noOverwriteDirNonDir'),
          copyUidGid: x.query.flag('copyUIDGID'),
        };
        await archives.write(x.param('name'), pathOf(x), options, x.bodySource());
        x.sendEmpty(200);
      },
      { body: 'archive', upload: 'takes' },
    ),

    route('GET', '/containers/{name...}/export', async (x) => {
      await sendTar(x, await archives.export(x.param('name')), 'application/octet-stream', {});
    }),
  ];
}

function pathOf(x: Exchange): string {
  const path = x.query.text('path');
  if (path === '') throw invalid('bad parameter: path cannot be empty', { code: 'MISSING_PARAMETER' });
  if (path.includes('\0')) throw invalid('bad parameter: path contains a NUL character', { code: 'INVALID_PATH' });
  return path;
}

/** Sends the tar at the client's speed, compressed if the client takes that; frees it when the client leaves. */
async function sendTar(x: Exchange, output: TarOutput, contentType: string, headers: Headers): Promise<void> {
  const { tar } = output;
  const encoding = contentType === 'application/x-tar' ? encodingOf(x.header('accept-encoding')) : undefined;
  try {
    const stream = x.stream(200, {
      'Content-Type': contentType,
      ...headers,
      ...(encoding === undefined ? {} : { 'Content-Encoding': encoding }),
    });
    stream.onClose(() => tar.destroy());
    if (encoding !== undefined) await pump(compressed(tar, encoding), stream);
    else await sendPlain(output, stream);
  } finally {
    tar.destroy();
  }
}

/**
 * Lets the thread that makes the tar send it, if that thread can have the connection: then the bytes need not pass
 * through this one.
 */
async function sendPlain(output: TarOutput, stream: ResponseStream): Promise<void> {
  const socketFd = await stream.lend();
  if (socketFd === undefined) return pump(output.tar, stream);
  try {
    await output.sendTo(socketFd);
  } catch (error) {
    // The thread that sends is the first to see that the client has left.
    if (isEngineError(error) && LEFT.has(error.code ?? '')) stream.abort();
    if (!stream.closed) throw error;
  } finally {
    closeFd(socketFd);
  }
  stream.end();
}

type Encoding = 'gzip' | 'deflate';

/** Returns the preferred encoding of those that we have, undefined for none. */
function encodingOf(header: string | undefined): Encoding | undefined {
  const offers = (header ?? '').split(',').flatMap((offer) => {
    const [name = '', ...parameters] = offer.split(';').map((part) => part.trim().toLowerCase());
    const quality = Number(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? '1');
    return (name === 'gzip' || name === 'deflate') && quality > 0 ? [{ name, quality } as const] : [];
  });
  return offers.toSorted((a, b) => b.quality - a.quality)[0]?.name;
}

function compressed(tar: Readable, encoding: Encoding): Readable {
  const compressor = encoding === 'gzip' ? createGzip() : createDeflate();
  tar.once('error', (error) => compressor.destroy(error));
  // A tar that is cut off must not look like one that ended.
  tar.once('close', () => tar.readableEnded || compressor.destroy());
  return tar.pipe(compressor);
}
