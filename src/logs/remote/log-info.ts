/** The description of a container that a log plugin gets. */
import type { LogInfo } from '../../ports/log-plugin.js';
import type { LoggedContainer } from '../../ports/logs.js';

export function infoOf(container: LoggedContainer): LogInfo {
  const { id, name, options, command = [], imageId = '', imageName, created = '', env, labels } = container;
  const [ContainerEntrypoint = '', ...ContainerArgs] = command;
  return {
    Config: options,
    ContainerID: id,
    ContainerName: `/${name.replace(/^\//, '')}`,
    ContainerEntrypoint,
    ContainerArgs,
    ContainerImageID: imageId,
    ContainerImageName: imageName,
    ContainerCreated: created,
    ContainerEnv: env,
    ContainerLabels: labels,
    LogPath: '',
    DaemonName: 'engined',
  };
}
