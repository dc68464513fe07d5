/**
 * Reads definitions that clients solve to look into files at an address or in a repository (`docker buildx bake URL`):
 * one source, maybe unpacked. Other definitions belong to other frontends.
 */
import { createHash } from 'node:crypto';
import { internal } from '../../errors/engine-error.js';
import type { RemoteOrder } from '../../ports/build-sources.js';
import { decode } from './grpc-messages.js';
import { type Definition, type Op, OpSchema } from './proto/gen/common_pb.js';

/** A source has two or three operations. */
const MAX_OPERATIONS = 16;
const MAX_OPERATION_BYTES = 64 * 1024;
const MAX_NAME_BYTES = 255;
const GIT = 'git://';

/** @throws EngineError internal for what is more than a source. */
export function sourceOrder({ def }: Definition): RemoteOrder {
  if (def.length > MAX_OPERATIONS || def.some(({ length }) => length > MAX_OPERATION_BYTES))
    throw foreign('so many operations');
  const operations = new Map(def.map((bytes) => [digestOf(bytes), operationOf(bytes)]));
  const last = def.at(-1);
  const terminal = last && operationOf(last);
  const top = operations.get(terminal?.inputs[0]?.digest ?? '');
  if (top === undefined) throw internal('invalid definition: its last operation names none of the others');
  if (top.op.case !== 'file') return orderOf(top, false);
  const [action, ...others] = top.op.value.actions;
  if (action?.copy?.attemptUnpack !== true || action.input >= 0 || others.length > 0) throw foreign('file');
  const source = operations.get(top.inputs[Number(action.secondaryInput)]?.digest ?? '');
  if (source === undefined) throw internal('invalid definition: an operation names an input that is not there');
  return orderOf(source, true);
}

function orderOf({ op }: Op, unpacks: boolean): RemoteOrder {
  if (op.case !== 'source') throw foreign(op.case ?? 'nothing');
  const { identifier, attrs: given } = op.value;
  const attrs = new Map(Object.entries(given));
  if (identifier.startsWith(GIT)) {
    const [place = '', fragment] = identifier.split('#', 2);
    const url = attrs.get('git.fullurl') ?? place;
    return {
      url: fragment === undefined ? url : `${url}#${fragment}`,
      checksum: attrs.get('git.checksum') ?? '',
      keepGitDir: attrs.get('git.keepgitdir') === 'true' || undefined,
    };
  }
  if (!/^https?:\/\//.test(identifier)) throw foreign(`source ${identifier.split('://', 1)[0]?.slice(0, 50)}`);
  const fileName = attrs.get('http.filename');
  // It becomes the name of a file here.
  if (fileName !== undefined && !isFileName(fileName)) throw internal('invalid definition: a bad http.filename');
  return {
    url: identifier,
    checksum: attrs.get('http.checksum') ?? '',
    keepGitDir: undefined,
    isFile: true,
    unpacks,
    ...(fileName !== undefined && { fileName }),
  };
}

function isFileName(name: string): boolean {
  if (name === '' || name === '.' || name === '..' || Buffer.byteLength(name) > MAX_NAME_BYTES) return false;
  return !name.includes('/') && !name.includes('\0');
}

function operationOf(bytes: Uint8Array): Op {
  try {
    return decode(OpSchema, bytes);
  } catch (error) {
    throw internal('invalid definition: an operation cannot be read', { cause: error });
  }
}

function foreign(what: string): Error {
  return internal(`this engine builds Dockerfiles only: it does not solve definitions with ${what}`);
}

function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
