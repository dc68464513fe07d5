/**
 * Names of jobs. The actors of one request, of which the next may begin while the effects of one that crashed are still
 * coming to their end, have one ID; each has a job of its own, so that no one ends or gives back what is another's.
 */
export class JobNames {
  readonly #byActor = new Map<string, string>();
  #count = 0;

  /** Names the job of a new actor. */
  begin(actorId: string): string {
    const name = `${actorId}#${++this.#count}`;
    this.#byActor.set(actorId, name);
    return name;
  }

  /** Forgets the job of an actor that has ended, and returns its name. */
  end(actorId: string): string {
    const name = this.#byActor.get(actorId) ?? actorId;
    this.#byActor.delete(actorId);
    return name;
  }
}
