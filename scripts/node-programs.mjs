/**
 * Shared by the commands that run programs of Kubernetes in front of both engines: finds the programs, which are the
 * machine's and which nothing fetches, and prepares the machine for them.
 */
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { apt, findProgram, installPackages } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { prepare } from './prepare.mjs';

/** Debian's plugins of the Container Network Interface are on no PATH. */
const CNI_PLUGIN = '/usr/lib/cni/bridge';
const CAP_SYS_RESOURCE = 1n << 24n;

/**
 * Reads `--NAME PROGRAM` for each of the names, and `--focus`. A program that is not named is one on PATH. Returns the
 * arguments of a program of test/compare. Throws an Error when a program is not there.
 */
export function readPrograms(...names) {
  const { rest } = peerOf(process.argv.slice(2));
  const text = { type: 'string' };
  const options = Object.fromEntries([...names, 'focus'].map((name) => [name, text]));
  const { values } = parseArgs({ args: rest, options });
  const programs = names.map((name) => {
    const path = values[name] === undefined ? findProgram(name) : resolve(values[name]);
    if (path === undefined || !existsSync(path))
      throw new Error(`there is no ${name}: name the program with --${name}, or have it on PATH`);
    return path;
  });
  return [...programs, ...(values.focus === undefined ? [] : [values.focus])];
}

/** cri-dockerd protects pod sandboxes from the kernel's killer, which takes a capability that root may lack. */
function warnOfScores() {
  const held = BigInt(`0x${/CapEff:\s*(\S+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]}`);
  if ((held & CAP_SYS_RESOURCE) === 0n)
    console.error(
      'this process lacks CAP_SYS_RESOURCE: with an unchanged cri-dockerd no sandbox will start, on either engine',
    );
}

/** Builds, and installs what a node needs besides its programs. */
export function prepareNode() {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  warnOfScores();
  prepare('test', process.env.ENGINE_PEER);
  installPackages({ ipcmk: 'util-linux' });
  if (!existsSync(CNI_PLUGIN)) apt(['install', '--no-install-recommends', 'containernetworking-plugins']);
}
