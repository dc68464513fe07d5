/** The network of the kernel as operators see it with their programs: links, rules, switches. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

export const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8' });
export const rules = (program: 'iptables' | 'ip6tables'): string =>
  execFileSync(`${program}-save`, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.replace(/ \[\d+:\d+\]$/, ''))
    .join('\n');
export const links = (): string[] =>
  ip('-o', 'link')
    .split('\n')
    .map((line) => line.split(': ')[1] ?? '');

/** Runs `body` with a switch of the kernel set, and puts it back. */
export async function withSwitch(path: string, value: string, body: () => Promise<void>): Promise<void> {
  const before = readFileSync(path, 'utf8');
  writeFileSync(path, value);
  try {
    await body();
  } finally {
    writeFileSync(path, before);
  }
}
