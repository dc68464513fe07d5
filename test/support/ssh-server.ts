/**
 * OpenSSH on loopback, for clients of this test process: a server, users with their key, and the settings of `ssh` for
 * the host `elsewhere`. All of it is in a view of /etc that only this process and what it starts have.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Cleanup } from './cleanup.js';
import { freePort } from './free-port.js';
import { enterOwnEtc } from './own-etc.js';
import { waitFor } from './wait.js';

/** Programs as sshd wants them: by their whole path. */
const SSHD = '/usr/sbin/sshd';
const PRIVILEGE_SEPARATION = '/run/sshd';
/** The number of the group, for daemons that have another view of /etc. */
export const GROUP_ID = 7100;

export interface SshServer {
  /** The process that listens; those of connections are its children. */
  readonly pid: number;
}

export interface SshUsers {
  readonly group: string;
  readonly members: readonly string[];
  readonly others: readonly string[];
}

/**
 * Makes users and a group named `group`, of which the users `members` are, and starts the server.
 * @param dir a directory that all may enter and that `cleanup` removes later.
 * @param path of the commands that clients run.
 * @param settings further lines of the server's configuration.
 */
export async function startSshServer(
  dir: string,
  { group, members, others, path, settings = [] }: SshUsers & { path: string; settings?: readonly string[] },
  cleanup: Cleanup,
): Promise<SshServer> {
  const etc = join(dir, 'etc');
  mkdirSync(etc);
  enterOwnEtc(etc);
  cleanup.add(async () => void execFileSync('umount', ['-l', '/etc', etc]));
  [...members, ...others].forEach((name, index) => {
    const id = GROUP_ID + 1 + index;
    appendFileSync('/etc/passwd', `${name}:x:${id}:${id}::${dir}:/bin/sh\n`);
    appendFileSync('/etc/shadow', `${name}:*:19000:0:99999:7:::\n`);
    appendFileSync('/etc/group', `${name}:x:${id}:\n`);
  });
  appendFileSync('/etc/group', `${group}:x:${GROUP_ID}:${members.join(',')}\n`);
  for (const name of ['host', 'user'])
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, name)]);
  const port = await freePort();
  const server = [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${join(dir, 'host')}`,
    `AuthorizedKeysFile ${join(dir, 'user.pub')}`,
    'PidFile none',
    'StrictModes no',
    'UsePAM no',
    `SetEnv PATH=${path}`,
    ...settings,
  ];
  writeFileSync(join(dir, 'sshd_config'), `${server.join('\n')}\n`);
  const client = [
    'Host elsewhere',
    'HostName 127.0.0.1',
    `Port ${port}`,
    `IdentityFile ${join(dir, 'user')}`,
    'StrictHostKeyChecking no',
    'UserKnownHostsFile /dev/null',
    'LogLevel ERROR',
    // The default also withstands quantum computers, which takes most of the processor time of a connection.
    'KexAlgorithms curve25519-sha256',
  ];
  writeFileSync('/etc/ssh/ssh_config', `${client.join('\n')}\n`);
  if (!existsSync(PRIVILEGE_SEPARATION)) {
    mkdirSync(PRIVILEGE_SEPARATION, { mode: 0o755 });
    cleanup.add(async () => rmdirSync(PRIVILEGE_SEPARATION));
  }
  const child = spawn(SSHD, ['-D', '-e', '-f', join(dir, 'sshd_config')], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (log += text));
  cleanup.add(async () => {
    if (child.exitCode !== null) return;
    child.kill();
    await once(child, 'exit');
  });
  await waitFor(
    () => `sshd to listen; it says ${log}`,
    async () => {
      if (child.exitCode !== null) throw new Error(`sshd ended: ${log}`);
      const probe = connect(port, '127.0.0.1');
      return once(probe, 'connect').then(
        () => (probe.destroy(), true),
        () => false,
      );
    },
  );
  return { pid: child.pid ?? 0 };
}
