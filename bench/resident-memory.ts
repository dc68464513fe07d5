/** Resident memory of an engine: the daemon, its supervisor and its helpers, without shims and containers. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

interface ProcessLine {
  readonly parent: number;
  readonly name: string;
  readonly residentKiB: number;
}

function readProcess(pid: string): ProcessLine | undefined {
  try {
    const status = readFileSync(join('/proc', pid, 'status'), 'utf8');
    const field = (name: string): string => new RegExp(`^${name}:\\s*(\\S+)`, 'm').exec(status)?.[1] ?? '';
    return { parent: Number(field('PPid')), name: field('Name'), residentKiB: Number(field('VmRSS')) };
  } catch {
    return undefined; // It has ended meanwhile.
  }
}

/** Bytes over the process tree of `rootPid`. Shims, which both engines use alike, end their branch. */
export function residentBytes(rootPid: number): number {
  const children = new Map<number, number[]>();
  const processes = new Map<number, ProcessLine>();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const found = readProcess(entry);
    if (found === undefined) continue;
    processes.set(Number(entry), found);
    children.set(found.parent, [...(children.get(found.parent) ?? []), Number(entry)]);
  }
  const sum = (pid: number): number => {
    const found = processes.get(pid);
    if (found === undefined || found.name.startsWith('containerd-shim')) return 0;
    return (children.get(pid) ?? []).reduce((total, child) => total + sum(child), found.residentKiB * 1024);
  };
  return sum(rootPid);
}

/**
 * Runs `action` and gives the largest value seen meanwhile, twice in a row: a child that has not become another program
 * yet has the memory of its parent, which is counted twice for that moment.
 */
export async function peakResidentBytes(rootPid: number, action: () => Promise<unknown>): Promise<number> {
  let last = residentBytes(rootPid);
  let peak = last;
  const timer = setInterval(() => {
    const now = residentBytes(rootPid);
    peak = Math.max(peak, Math.min(last, now));
    last = now;
  }, 50);
  try {
    await action();
  } finally {
    clearInterval(timer);
  }
  return peak;
}
