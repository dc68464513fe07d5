/** Task: brings the content of an address into a file, with its digest, unless it is the content that is known. */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import type { MessagePort } from 'node:worker_threads';
import { EngineError, internal } from '../../errors/engine-error.js';
import { type HttpLimits, type HttpRequest, readBody, sendRequest } from '../../registry/http.js';
import { TaskLink } from '../../workers/task-link.js';

export interface FetchUrlInput {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** A new file with this mode gets the content. */
  readonly path: string;
  readonly maxBytes: number;
  readonly limits: HttpLimits;
  readonly port: MessagePort;
}

/** Progress of the download. */
export interface FetchUrlReport {
  readonly type: 'downloading';
  readonly current: number;
  readonly total: number | undefined;
}

export interface FetchUrlOutput {
  /** False when the server has said that the content is the known one. */
  readonly isNew: boolean;
  readonly digest: string;
  readonly bytes: number;
  readonly etag: string;
  /** ms since 1970; undefined when the server does not tell. */
  readonly modifiedMs: number | undefined;
  readonly contentType: string;
  readonly contentDisposition: string;
}

const MAX_REASON_BYTES = 4 << 10;
const FILE_MODE = 0o600;

/** @throws EngineError; `details.status` is the status of a server that refuses, `details.reason` its words. */
export async function fetchUrl(input: FetchUrlInput): Promise<FetchUrlOutput> {
  const link = new TaskLink<FetchUrlReport>(input.port);
  const { url, headers, limits } = input;
  const request: HttpRequest = { method: 'GET', url, headers, limits, tls: { verify: true }, signal: link.signal };
  try {
    const response = await sendRequest(request);
    try {
      if (response.statusCode === 304) return { ...factsOf(response), isNew: false, digest: '', bytes: 0 };
      await requireSuccess(request, response);
      return { ...factsOf(response), isNew: true, ...(await save(response, input, link)) };
    } finally {
      response.destroy();
    }
  } catch (error) {
    link.signal.throwIfAborted();
    throw error;
  } finally {
    link.close();
  }
}

async function requireSuccess(request: HttpRequest, response: IncomingMessage): Promise<void> {
  const { statusCode: status = 0, statusMessage = '' } = response;
  if (status >= 200 && status < 400) return;
  const body = await readBody(request, response, MAX_REASON_BYTES).catch(() => Buffer.alloc(0));
  throw new EngineError(status === 404 ? 'not-found' : 'internal', `invalid response status ${status}`, {
    details: { status: `${status} ${statusMessage}`.trim(), reason: body.toString() },
  });
}

async function save(
  response: IncomingMessage,
  { path, maxBytes }: FetchUrlInput,
  link: TaskLink<FetchUrlReport>,
): Promise<Pick<FetchUrlOutput, 'digest' | 'bytes'>> {
  const total = lengthOf(response);
  const full = (): EngineError => internal('no space left on device: the file is larger than the room for it');
  if (total !== undefined && total > maxBytes) throw full();
  const hash = createHash('sha256');
  const file = await open(path, 'wx', FILE_MODE);
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > maxBytes) throw full();
      hash.update(chunk);
      for (let at = 0; at < chunk.length;) at += (await file.write(chunk, at)).bytesWritten;
      link.progress({ type: 'downloading', current: bytes, total });
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ECONNRESET') throw internal('unexpected EOF', { cause: error });
    throw error;
  } finally {
    await file.close();
  }
  if (!response.complete || (total !== undefined && bytes !== total)) throw internal('unexpected EOF');
  link.report({ type: 'downloading', current: bytes, total });
  return { digest: `sha256:${hash.digest('hex')}`, bytes };
}

function lengthOf({ headers }: IncomingMessage): number | undefined {
  const length = headers['content-length'];
  return length !== undefined && /^\d{1,15}$/.test(length) ? Number(length) : undefined;
}

function factsOf({ headers }: IncomingMessage): Omit<FetchUrlOutput, 'isNew' | 'digest' | 'bytes'> {
  const modifiedMs = Date.parse(headers['last-modified'] ?? '');
  return {
    etag: headers.etag ?? '',
    modifiedMs: Number.isNaN(modifiedMs) ? undefined : modifiedMs,
    contentType: headers['content-type'] ?? '',
    contentDisposition: headers['content-disposition'] ?? '',
  };
}
