import type { ContainerConfig, HostConfig } from '../../../ports/container.js';
import type { EndpointRequest } from '../container.record.js';

/** The container that a client asked for, decoded and with defaults, before the image was looked at. */
export interface CreateRequest {
  /** Name with or without the leading slash; undefined or '': the daemon makes one up. */
  readonly name: string | undefined;
  /** `os/arch[/variant]`. */
  readonly platform: string | undefined;
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  /** Mounts below a read-only bind stay as they are, unless the request says otherwise. */
  readonly keepsSubmountsWritable: boolean;
  readonly endpoints: Readonly<Record<string, EndpointRequest>>;
  /** Each warning names something that the client should write differently. */
  readonly warnings: readonly string[];
}
