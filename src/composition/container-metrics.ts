/** Makes the metrics of single containers from their records and from what the kernel has counted. */
import type { ContainerRecord } from '../actors/container/container.record.js';
import { isRunning } from '../actors/container/container.record.js';
import type { ContainerUsage } from '../ports/stats.js';
import { containerFiguresText, type ContainerFigures } from '../telemetry/container-figures.js';

/** Returns the usage of all running containers by id. */
export type UsageSource = () => Promise<ReadonlyMap<string, ContainerUsage>>;

export async function containerMetrics(records: readonly ContainerRecord[], usages: UsageSource): Promise<string> {
  const byId = await usages();
  return containerFiguresText(records.map((record) => figuresOf(record, byId.get(record.id))));
}

function figuresOf(record: ContainerRecord, usage: ContainerUsage | undefined): ContainerFigures {
  const { status, startedAt, exitCode, health } = record.state;
  const runs = isRunning(record);
  return {
    name: record.name.slice(1),
    isRunning: runs,
    startedAt: runs ? Date.parse(startedAt) / 1000 : undefined,
    exitCode: status === 'exited' || status === 'dead' ? exitCode : undefined,
    restarts: record.restartCount,
    health: runs ? health?.status : undefined,
    usage: runs ? usage : undefined,
  };
}
