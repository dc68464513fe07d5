import type { ContainerConfig, HostConfig } from '../../../ports/container.js';
import type { EndpointRequest } from '../container.record.js';

/** What a client asked for, decoded and defaulted, before the image was looked at. */
export interface CreateRequest {
  /** With or without the leading slash; undefined or '': a name is made up. */
  readonly name: string | undefined;
  /** `os/arch[/variant]`. */
  readonly platform: string | undefined;
  readonly config: ContainerConfig;
  readonly hostConfig: HostConfig;
  /** What is mounted below a read-only bind stays as it is, unless the request says otherwise. */
  readonly keepsSubmountsWritable: boolean;
  readonly endpoints: Readonly<Record<string, EndpointRequest>>;
  /** About what the client should say otherwise. */
  readonly warnings: readonly string[];
}
