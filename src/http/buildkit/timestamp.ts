/** Times as protobuf has them. */
import type { Timestamp } from '@bufbuild/protobuf/wkt';

/** @param milliseconds since 1970, maybe with a fraction. */
export function timestamp(milliseconds: number): Omit<Timestamp, '$typeName' | '$unknown'> {
  const seconds = Math.floor(milliseconds / 1000);
  const nanos = Math.round((milliseconds - seconds * 1000) * 1_000_000);
  return { seconds: BigInt(seconds), nanos: Math.min(nanos, 999_999_999) };
}
