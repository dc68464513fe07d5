/** Says in gRPC's words what went wrong, with the details by which clients show the place in the Dockerfile. */
import { Metadata, status as Code, type ServiceError } from '@grpc/grpc-js';
import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { DockerfileError } from '../../build/dockerfile/dockerfile-error.js';
import { internal, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { BuildFailureFacts } from '../../ports/build.js';
import { decode, GrpcCode } from './grpc-messages.js';
import { StatusSchema, type Status } from './proto/gen/common_pb.js';

const TYPES = 'github.com/moby/buildkit/';
const DETAILS_KEY = 'grpc-status-details-bin';
/** Headers with more are refused by clients. */
const MAX_DETAILS_BYTES = 256 * 1024;
const MAX_MESSAGE_CHARS = 8192;
/** Each place in the Dockerfile that has part in a failure comes with the whole text. */
const MAX_PLACES = 10;
const MAX_PLACES_CHARS = MAX_DETAILS_BYTES / 2;

const CODES = new Map<number, Code>(
  Object.values(Code)
    .filter((code): code is Code => typeof code === 'number')
    .map((code) => [code, code]),
);

/** An error that another process has described already is passed on as it came. */
export class ForeignStatus extends Error {
  readonly status: Status;

  constructor(status: Status) {
    super(status.message);
    this.status = status;
  }
}

/** Returns google.rpc.Status of an error. */
export function describeError(error: unknown): Status {
  if (error instanceof ForeignStatus) return error.status;
  const details = detailsOf(error).map(({ type, value }) =>
    create(AnySchema, { typeUrl: `${TYPES}${type}`, value: Buffer.from(JSON.stringify(value)) }),
  );
  return create(StatusSchema, {
    code: codeOf(error),
    message: messageOf(error).slice(0, MAX_MESSAGE_CHARS),
    details: details,
  });
}

export function statusOf(error: unknown): ServiceError {
  const status = describeError(error);
  const metadata = new Metadata();
  const bytes = encodeStatus(status);
  if (status.details.length > 0 && bytes.length <= MAX_DETAILS_BYTES) metadata.set(DETAILS_KEY, bytes);
  return Object.assign(new Error(status.message), {
    code: CODES.get(status.code) ?? Code.UNKNOWN,
    details: status.message,
    metadata,
  });
}

export function encodeStatus(status: Status): Buffer {
  return Buffer.from(toBinary(StatusSchema, status));
}

/** Reads a status that a client returns. */
export function readStatus(bytes: Uint8Array): Status {
  return decode(StatusSchema, bytes);
}

function codeOf(error: unknown): number {
  if (error instanceof DescribedFailure) return error.code;
  const known = isEngineError(error) ? error.details['grpcCode'] : undefined;
  if (typeof known === 'number') return known;
  if (isEngineError(error, 'cancelled')) return GrpcCode.cancelled;
  if (isEngineError(error, 'not-implemented')) return GrpcCode.unimplemented;
  if (isEngineError(error, 'not-found')) return GrpcCode.notFound;
  return GrpcCode.unknown;
}

interface Detail {
  readonly type: string;
  readonly value: object;
}

/** An error of a build, with what clients show besides its text. */
class DescribedFailure extends Error {
  readonly code: number;
  readonly details: readonly Detail[];

  constructor(error: unknown, details: readonly Detail[]) {
    super(messageOf(error), { cause: error });
    this.code = codeOf(error);
    this.details = details;
  }
}

/** Adds to a failure the lines of the Dockerfile that are to blame, the step, and the exit code. */
export function describeFailure(
  error: unknown,
  dockerfile: { readonly name: string; readonly text: Buffer },
  step?: string,
): Error {
  const { lines, vertex = step, exitCode } = factsOf(error);
  const details: Detail[] = [...detailsOf(error), { type: 'errdefs.Frontend+json', value: { name: 'dockerfile.v0' } }];
  if (lines !== undefined) {
    const info = { filename: dockerfile.name, data: dockerfile.text.toString('base64'), language: 'Dockerfile' };
    const most = Math.min(MAX_PLACES, Math.max(1, Math.floor(MAX_PLACES_CHARS / info.data.length)));
    for (const { start, end } of [lines, ...othersOf(error)].slice(0, most)) {
      const ranges = [{ start: { line: start }, end: { line: end } }];
      details.push({ type: 'errdefs.Source+json', value: { info, ranges } });
    }
  }
  if (vertex !== undefined) details.push({ type: 'errdefs.Vertex+json', value: { digest: vertex } });
  if (exitCode !== undefined) details.push({ type: 'gatewayapi.ExitMessage+json', value: { Code: exitCode } });
  return new DescribedFailure(error, details);
}

/** Refuses a question of a client. Clients say it twice, once from the name in the details. */
export function unsupported(request: string): Error {
  const details = [{ type: 'errdefs.Subrequest+json', value: { name: request } }];
  return new DescribedFailure(internal(`unsupported request ${request}`), details);
}

function othersOf(error: unknown): DockerfileError['others'] {
  return error instanceof DockerfileError ? error.others : [];
}

function factsOf(error: unknown): BuildFailureFacts {
  const lines = error instanceof DockerfileError ? error.lines : undefined;
  return { ...(isEngineError(error) && error.details), ...(lines !== undefined && { lines }) };
}

function detailsOf(error: unknown): readonly Detail[] {
  return error instanceof DescribedFailure ? error.details : [];
}
