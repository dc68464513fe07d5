/** The tests in the virtual machine (scripts/test-vm.mjs) use its programs and an image by these functions. */
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from './wait.js';

/** Emulated programs take ten times as long, and some wait for others. */
const PROGRAM_LIMIT_MS = 10 * 60_000;
const WAIT_LIMIT_MS = 10 * 60_000;
const POLL_MS = 500;

export interface Outcome {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program and gives its outcome. Throws when it does not end. */
export function outcomeOf(program: string, ...args: readonly string[]): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    execFile(program, args, { timeout: PROGRAM_LIMIT_MS }, (error, stdout, stderr) => {
      if (error === null) resolve({ status: 0, stdout, stderr });
      else if (typeof error.code === 'number') resolve({ status: error.code, stdout, stderr });
      else reject(new Error(`${program} ${args.join(' ')}: ${error.message}`, { cause: error }));
    });
  });
}

/** Runs a program that has to succeed, and returns its trimmed output. */
export async function output(program: string, ...args: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await outcomeOf(program, ...args);
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} ended with ${status}: ${stderr}${stdout}`);
  return stdout.trim();
}

/** Whether the machine's programs run at full speed, because its kernel is a program of the host. */
export const IS_NATIVE = process.env['NATIVE'] !== undefined;

export const docker = (...args: readonly string[]): Promise<string> => output('docker', ...args);
export const systemctl = (...args: readonly string[]): Promise<string> => output('systemctl', ...args);

/** Waits as `waitFor`, as long as a slow machine needs. */
export function waitLong<T>(what: string, probe: () => Promise<T | undefined | false>): Promise<T> {
  return waitFor(what, probe, WAIT_LIMIT_MS, POLL_MS);
}

/** A property of a unit, as systemd shows it. */
export function property(unit: string, name: string): Promise<string> {
  return systemctl('show', '--value', '-p', name, unit);
}

/** Imports an image `box` that has the machine's busybox. @param host is the address of the daemon, if not root's. */
export async function importBox(host?: string): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'box-'));
  try {
    const bin = join(dir, 'root/bin');
    await mkdir(bin, { recursive: true });
    await copyFile('/bin/busybox', join(bin, 'busybox'));
    for (const name of (await output('/bin/busybox', '--list')).split('\n'))
      if (name !== 'busybox') await symlink('busybox', join(bin, name));
    await output('tar', '-C', join(dir, 'root'), '-cf', join(dir, 'box.tar'), '.');
    await docker(...(host === undefined ? [] : ['--host', host]), 'import', join(dir, 'box.tar'), 'box');
  } finally {
    await rm(dir, { recursive: true });
  }
}
