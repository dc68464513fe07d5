/** Replies and effects for tests of pure transitions: each of them fails the test when it is executed. */
import assert from 'node:assert/strict';
import { Replies } from '../../src/actors/kit/replies.js';

export const never = (): never => assert.fail('nothing is executed');

export class NoReplies extends Replies {
  override settle(): void {
    never();
  }

  override reject(): void {
    never();
  }
}
