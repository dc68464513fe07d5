/**
 * The daemon that takes over from a running one (`engined upgrade`), which has started it. It says when it is able to,
 * gets the sockets when the other has let go of everything, and says when it serves.
 */
import { checkState } from '../inventory/state-version.js';
import { closeFd, duplicateFd } from '../sys/files/fd.js';
import { MessageSocket } from '../sys/net/message-socket.js';

/** Names the descriptor that leads to the predecessor. */
export const HANDOVER_VARIABLE = 'ENGINED_HANDOVER';
export const PREPARED = 'prepared';
export const GO = 'go';
export const SERVES = 'serves';

export class Succession {
  readonly #predecessor: MessageSocket;

  private constructor(predecessor: MessageSocket) {
    this.#predecessor = predecessor;
  }

  /**
   * Returns undefined in a process that succeeds nobody. It takes the variable out of the environment, so that no child
   * takes it for its own.
   */
  static of(environment: NodeJS.ProcessEnv): Succession | undefined {
    const given = environment[HANDOVER_VARIABLE] ?? '';
    delete environment[HANDOVER_VARIABLE];
    if (!/^\d{1,4}$/.test(given)) return undefined;
    // The copy is closed on exec.
    const fd = duplicateFd(Number(given));
    closeFd(Number(given));
    return new Succession(new MessageSocket(fd));
  }

  /**
   * Says that this program can take over, and waits until it may. When the predecessor dies meanwhile, it may as well,
   * with whatever it has got. @returns the sockets, by their names in the store.
   * @throws EngineError invalid when it cannot read the state; then the predecessor goes on.
   */
  async take(dataRoot: string): Promise<ReadonlyMap<string, number>> {
    await checkState(dataRoot);
    this.#predecessor.send(PREPARED);
    const sockets = new Map<string, number>();
    for (;;) {
      const message = await this.#predecessor.next();
      const text = message?.bytes.toString() ?? GO;
      if (text === GO) return sockets;
      text.split('\n').forEach((name, i) => {
        const fd = message?.fds[i];
        if (fd !== undefined) sockets.set(name, fd);
      });
    }
  }

  /** Tells the predecessor, which ends then, that this daemon serves. */
  serves(): void {
    try {
      this.#predecessor.send(SERVES);
    } catch {
      // It has died, and needs to know no more.
    }
    this.#predecessor.close();
  }
}
