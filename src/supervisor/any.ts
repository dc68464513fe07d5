/**
 * Wraps typed values as containerd does: it knows its messages by bare name, without the `type.googleapis.com/` prefix.
 */
import { create, toBinary, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { AnySchema, type Any } from '@bufbuild/protobuf/wkt';
import { encodeOci } from './oci-json.js';

/** Packs a protobuf message as containerd's registry of types expects it. */
export function packMessage<Desc extends DescMessage>(schema: Desc, init: MessageInitShape<Desc>): Any {
  return create(AnySchema, { typeUrl: schema.typeName, value: toBinary(schema, create(schema, init)) });
}

/** Packs a JSON document of the OCI runtime specification. */
export function packOci(kind: 'Spec' | 'Process' | 'LinuxResources', document: Readonly<Record<string, unknown>>): Any {
  return create(AnySchema, {
    typeUrl: `types.containerd.io/opencontainers/runtime-spec/1/${kind}`,
    value: encodeOci(document),
  });
}
