/**
 * Handles SIGUSR1. Node answers it by opening a debugger on a TCP port without a password, unless the program handles
 * the signal itself. So this daemon handles it before anything else, and uses it to write its state.
 */

let listener: (() => void) | undefined;
let hasCome = false;

/** Takes the signal from Node. A signal that comes before anybody listens is kept. */
export function holdDebugSignal(): void {
  process.on('SIGUSR1', () => {
    if (listener === undefined) hasCome = true;
    else listener();
  });
}

/** From now on `onSignal` is called at each signal; at once if one has come already. */
export function onDebugSignal(onSignal: () => void): void {
  listener = onSignal;
  if (hasCome) onSignal();
  hasCome = false;
}
