/**
 * SIGUSR1. Node answers it by opening a debugger on a TCP port without a password, unless the program handles the
 * signal itself. So this daemon handles it before anything else, and uses it to write its state.
 */
export class DebugSignal {
  #listener: (() => void) | undefined;
  #hasCome = false;

  /** Takes the signal from Node. A signal that comes before anybody listens is kept. */
  static hold(): DebugSignal {
    const signal = new DebugSignal();
    process.on('SIGUSR1', () => {
      if (signal.#listener === undefined) signal.#hasCome = true;
      else signal.#listener();
    });
    return signal;
  }

  /** From now on `listener` is called at each signal; at once if one has come already. */
  listen(listener: () => void): void {
    this.#listener = listener;
    if (this.#hasCome) listener();
    this.#hasCome = false;
  }
}
