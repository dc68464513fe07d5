/**
 * Names of what a build has made. A client hands them on to another build as the definition of an input and looks only
 * at their form: an operation that names a source, and a last one that points to it.
 */
import { createHash } from 'node:crypto';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { decode, encode } from './grpc-messages.js';
import { OpSchema, type Definition, type DefinitionSchema } from './proto/gen/common_pb.js';

const SCHEME = 'engined-build://';

export function definitionOf(reference: string): MessageInitShape<typeof DefinitionSchema> {
  const source = encode(OpSchema, { op: { case: 'source', value: { identifier: `${SCHEME}${reference}` } } });
  const digest = digestOf(source);
  const last = encode(OpSchema, { inputs: [{ digest, index: 0n }] });
  return { def: [source, last], metadata: { [digest]: {}, [digestOf(last)]: {} } };
}

/** Returns the name that a definition of ours has; undefined for any other definition. */
export function referenceOf({ def }: Definition): string | undefined {
  const [source] = def;
  if (source === undefined || def.length > 2) return undefined;
  try {
    const { op } = decode(OpSchema, source);
    const identifier = op.case === 'source' ? op.value.identifier : '';
    return identifier.startsWith(SCHEME) ? identifier.slice(SCHEME.length) : undefined;
  } catch {
    return undefined;
  }
}

function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
