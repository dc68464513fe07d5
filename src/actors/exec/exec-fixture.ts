/** An exec that has not begun, for tests. */
import type { ExecConfig, ExecRecord } from './exec.record.js';

export const created: ExecRecord = {
  id: 'e',
  containerId: 'c',
  config: {} as ExecConfig,
  running: false,
  exitCode: null,
  pid: 0,
};
export const size = { width: 80, height: 24 };
