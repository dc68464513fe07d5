/**
 * `POST /build` with `version=2`: BuildKit for clients that speak no gRPC, or do so only in their session. The reply
 * has the messages that others get by `Status`, as text.
 */
import { randomUUID } from 'node:crypto';
import { buildAux, buildLine } from '../api/build-progress.js';
import { BuildReply } from '../build-reply.js';
import type { Exchange } from '../exchange.js';
import { makesImage, solveRequest } from './classic-request.js';
import { type ControlParts, solve } from './control.js';
import type { RequestBodies } from './request-bodies.js';
import { Uploads } from './uploads.js';

const UPLOAD = 'upload-request';
const UPLOAD_PREFIX = `${UPLOAD}:`;
/** The build is there at once. */
const JOB_PATIENCE_MS = 60_000;

export interface ClassicBuildParts extends ControlParts {
  readonly bodies: RequestBodies;
}

export class ClassicBuilds {
  readonly #uploads = new Uploads();
  readonly #running = new Map<string, AbortController>();

  constructor(private readonly parts: ClassicBuildParts) {}

  /** Gives the build of this ID up; an unknown one is no error. */
  cancel(id: string): void {
    this.#running.get(id)?.abort();
  }

  async build(x: Exchange): Promise<void> {
    const id = x.query.text('buildid');
    if (id.startsWith(UPLOAD_PREFIX)) {
      await this.#uploads.offer(id.slice(UPLOAD_PREFIX.length), x.bodySource(), x.signal);
      return x.sendEmpty(200);
    }
    const abort = new AbortController();
    if (id !== '') this.#running.set(id, abort);
    try {
      await this.#build(x, id, AbortSignal.any([x.signal, abort.signal]));
    } finally {
      if (this.#running.get(id) === abort) this.#running.delete(id);
    }
  }

  async #build(x: Exchange, id: string, signal: AbortSignal): Promise<void> {
    const { bodies } = this.parts;
    const remote = x.query.text('remote');
    const upload = remote === UPLOAD ? await this.#uploads.take(id, signal) : undefined;
    const body = upload?.body ?? (remote === '' ? x.bodySource() : undefined);
    const context = body && bodies.add(body);
    try {
      await this.#run(x, solveRequest(x.query, { ref: randomUUID(), context }), signal);
    } finally {
      if (context !== undefined) bodies.forget(context);
      upload?.used();
    }
  }

  async #run(x: Exchange, request: ReturnType<typeof solveRequest>, signal: AbortSignal): Promise<void> {
    const { jobs } = this.parts;
    const isQuiet = x.query.flag('q');
    const reply = new BuildReply(x);
    const solving = solve(this.parts, request, { signal });
    solving.catch(() => undefined);
    try {
      const job = await Promise.race([jobs.wait(request.ref, JOB_PATIENCE_MS, signal), solving.then(() => undefined)]);
      if (job !== undefined) {
        for await (const message of job.progress.read(signal)) {
          if (isQuiet) continue;
          reply.write(buildAux('moby.buildkit.trace', message.toString('base64')));
          await reply.ready();
        }
      }
      const { exporterResponse } = await solving;
      const image = exporterResponse['containerimage.digest'];
      if (image !== undefined && makesImage(x.query)) {
        if (isQuiet) reply.write(buildLine({ kind: 'text', text: `${image}\n` }));
        else reply.write(buildAux('moby.image.id', { ID: image }));
      }
      reply.end();
    } catch (error) {
      const failure = await solving.then(
        () => error,
        (own: unknown) => own,
      );
      reply.fail(failure);
    }
  }
}
