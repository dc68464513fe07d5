/** Keeps steps of several builds from doing the same at the same time: the second one finds what the first has made. */
import { Slots } from '../../kit/slots.js';

interface Claim {
  readonly slot: Slots;
  /** Those who have the step or wait for it. */
  users: number;
}

export class StepClaims {
  readonly #claims = new Map<string, Claim>();

  /** Resolves, when nobody else has the key, with an idempotent function that gives it back. */
  async take(key: string, signal: AbortSignal): Promise<() => void> {
    const claim = this.#claims.get(key) ?? { slot: new Slots(1), users: 0 };
    this.#claims.set(key, claim);
    claim.users++;
    try {
      const giveBack = await claim.slot.take(signal);
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        giveBack();
        this.#leave(key, claim);
      };
    } catch (error) {
      this.#leave(key, claim);
      throw error;
    }
  }

  #leave(key: string, claim: Claim): void {
    if (--claim.users === 0) this.#claims.delete(key);
  }
}
