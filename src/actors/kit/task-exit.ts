/** The exit of a task, heard from before it can happen. */
import type { TaskService } from '../../ports/supervisor.js';

export interface TaskExit {
  /** Resolves with the exit code. */
  readonly code: Promise<number>;
  /** Ends the listening. */
  forget(): void;
}

export function taskExit(tasks: Pick<TaskService, 'onEvent'>, id: string): TaskExit {
  let forget = (): void => undefined;
  const code = new Promise<number>((resolve) => {
    forget = tasks.onEvent((event) => {
      if (event.type === 'exit' && event.id === id && event.execId === '') resolve(event.exit.exitCode);
    });
  });
  return { code, forget: () => forget() };
}
