/**
 * Keeps links (`HostConfig.Links`) true when a container begins to run: it reaches what it is linked to, and running
 * containers that are linked to it find its new address in their hosts files.
 */
import type { Logger } from '../../../ports/logger.js';
import type { NetworkDriver } from '../../../ports/network.js';
import { isRunning, type ContainerRecord } from '../container.record.js';
import type { ContainerViews } from '../views.js';
import { openLinks } from './legacy-links.js';

export interface LinkRefreshDeps {
  readonly network: Pick<NetworkDriver, 'link'>;
  readonly views: Pick<ContainerViews, 'get' | 'linking'>;
  readonly writeFiles: (record: ContainerRecord) => Promise<unknown>;
  readonly log: Logger;
}

/** Refreshes the links. This must be called when `record` has begun to run, or has changed while it runs. */
export function refreshLinks({ network, views, writeFiles, log }: LinkRefreshDeps, record: ContainerRecord): void {
  const open = (linked: ContainerRecord): void =>
    void openLinks(network, linked, (id) => views.get(id)).catch((error: unknown) =>
      log.error({ err: error, container: linked.id }, 'links are not open'),
    );
  open(record);
  for (const other of views.linking()) {
    if (!other.links?.some((link) => link.id === record.id) || !isRunning(other)) continue;
    open(other);
    writeFiles(other).catch((error: unknown) =>
      log.error({ err: error, container: other.id }, 'hosts file not written'),
    );
  }
}
