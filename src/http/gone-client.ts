/**
 * Ends connections of clients that have left. A client may end its input and go on reading; when it has done so, Node
 * does not notice any more that it leaves, before something is written to it. A silent container writes nothing, so
 * each such client would stay for as long as the container.
 */
import type { Duplex } from 'node:stream';
import { onceGone } from '../sys/net/arrivals.js';

/** Destroys the stream once its client has ended its input and is gone, with what it is for. */
export function endWithClient(client: Duplex & { readonly fd: number }): void {
  const watch = (): void => {
    if (client.destroyed) return;
    try {
      const gone = onceGone(client.fd, () => client.destroy());
      client.once('close', () => gone.close());
    } catch {
      // There is no room for a further watch: then it is noticed with the next piece of output.
    }
  };
  if (client.readableEnded) watch();
  else client.once('end', watch);
}
