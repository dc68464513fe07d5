/** Names that nothing else has, for what is being made or deleted. */
import { randomBytes } from 'node:crypto';

export function randomName(): string {
  return randomBytes(12).toString('hex');
}
