/** A container as its log driver knows it. */
import type { LoggedContainer } from '../../../ports/logs.js';
import type { ContainerRecord } from '../container.record.js';

/** @param dir directory of the container's own files. */
export function loggedContainer(
  { id, config, hostConfig, name, image, path, args, created }: ContainerRecord,
  dir: string,
): LoggedContainer {
  return {
    id,
    dir,
    driver: hostConfig.LogConfig.Type,
    options: hostConfig.LogConfig.Config,
    labels: config.Labels,
    env: config.Env ?? [],
    name: name.slice(1),
    imageName: config.Image,
    imageId: image,
    command: [path, ...args],
    created,
  };
}
