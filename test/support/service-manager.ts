/** A service manager with a descriptor store, by the protocols of sd_notify(3) and sd_listen_fds(3). */
import type { EngineKind } from './engine.js';
import { receiveNotifications, type Notifications } from './notifications.js';

export interface TestManager extends Notifications {
  /** Returns a daemon that this manager starts. */
  managed(kind: EngineKind): EngineKind;
}

/** @param path absolute; the socket that the daemon notifies. */
export function startManager(path: string): TestManager {
  const notifications = receiveNotifications(path);
  const { stored } = notifications;
  return {
    ...notifications,
    managed: (kind) => ({
      ...kind,
      env: { ...kind.env, NOTIFY_SOCKET: path, FDSTORE: '4096' },
      passed: () => [...stored.values()],
      command: (dir, socketPath) => {
        const names = [...stored.keys()];
        if (names.length === 0) return kind.command(dir, socketPath);
        // The variables name the process that gets the descriptors.
        const script = `LISTEN_PID=$$ LISTEN_FDS=${names.length} LISTEN_FDNAMES=${names.join(':')} exec "$@"`;
        return ['sh', '-c', script, 'sh', ...kind.command(dir, socketPath)];
      },
    }),
  };
}
