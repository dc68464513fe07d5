/** The statements that a scan has left. */
import { join } from 'node:path';
import { invalid, isEngineError } from '../../../errors/engine-error.js';
import type { ScannedStatement } from '../../../ports/build.js';
import { prefixed } from './failure.js';
import type { StepResult } from './step-result.js';
import type { SolveTools } from './tools.js';

/** The name of the file about the result itself begins with this, and with a full stop after it. */
const CORE = 'sbom';

/**
 * Reads the statements of a scan, the one about the result itself first. Their files are there until the build ends.
 * @throws EngineError invalid for what is no statement about the contents of a result.
 */
export async function scannedStatements(
  tools: SolveTools,
  { layer }: Pick<StepResult, 'layer'>,
  signal: AbortSignal,
): Promise<ScannedStatement[]> {
  const { directory: root } = await tools.filesOf({ layer, files: undefined });
  const into = await tools.directory('build-scan-');
  try {
    const found = await tools.deps.pool.run('read-statements', { root, into }, { signal });
    const all = found.map(({ file, ...statement }) => ({
      ...statement,
      predicate: { path: join(into, file), sizeBytes: statement.sizeBytes },
    }));
    const isCore = ({ name }: ScannedStatement): boolean => name.split('.', 1)[0] === CORE;
    return [...all.filter(isCore), ...all.filter((one) => !isCore(one))];
  } catch (error) {
    throw isEngineError(error, 'invalid') ? invalid(error.message) : prefixed(error, 'failed to read the scan: ');
  }
}
