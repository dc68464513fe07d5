/**
 * The capabilities of program files (linux/capability.h, `struct vfs_ns_cap_data`). Those without a root of their own
 * count only for the host's: in a user namespace they are given the root of the container, which an archive leaves out.
 */
const NAME = 'security.capability';
const PLAIN_BYTES = 20;
const VERSION_BYTE = 3;
const VERSION_2 = 2;
const VERSION_3 = 3;

type Xattrs = ReadonlyMap<string, Buffer> | undefined;

/** The attributes of a file of an archive, for a host where the root of the container is `rootUid`. */
export function withCapabilityRoot(xattrs: Xattrs, rootUid: number): Xattrs {
  const plain = xattrs?.get(NAME);
  if (!xattrs || plain?.length !== PLAIN_BYTES || plain[VERSION_BYTE] !== VERSION_2) return xattrs;
  const rooted = Buffer.alloc(PLAIN_BYTES + 4);
  plain.copy(rooted);
  rooted[VERSION_BYTE] = VERSION_3;
  rooted.writeUInt32LE(rootUid, PLAIN_BYTES);
  return new Map([...xattrs, [NAME, rooted]]);
}

/** The value of an attribute as archives have it. */
export function withoutCapabilityRoot(name: string, value: Buffer): Buffer {
  if (name !== NAME || value[VERSION_BYTE] !== VERSION_3) return value;
  const plain = Buffer.from(value.subarray(0, PLAIN_BYTES));
  plain[VERSION_BYTE] = VERSION_2;
  return plain;
}
