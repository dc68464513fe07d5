/**
 * The machine of `npm run test:vm -- --native`: a kernel that is a program of this one (scripts/test-kernel.mjs) with
 * the disk of an emulated machine, and a link to clients in this one, which load its daemon from outside. Plain Node.
 */
import { spawn } from 'node:child_process';
import { openSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { ensureKernel } from './test-kernel.mjs';
import { ensureMachine } from './test-machine.mjs';

/** Both ends of the link, with addresses that are for documentation: the machine's, and where the load waits for it. */
export const ADDRESSES = { address: '192.0.2.2', outside: '192.0.2.1:7000' };
const LOAD = join(ROOT, 'dist', 'test', 'support', 'outside-load.js');

/** The arguments are the kernel's command and its arguments, after the processor that it stays on. */
const RUN = `ip link set lo up &&
ip link add outside type veth peer name machine &&
ip address add ${ADDRESSES.outside.replace(/:.*/, '')}/24 dev outside &&
ip link set outside up &&
ip link set machine up || exit
'${process.execPath}' '${LOAD}' ${ADDRESSES.outside} >&2 &
taskset -c "$@"
`;

/**
 * Starts the machine. Its processes and those of its load are in namespaces of their own, and end with the first, as
 * does their link: nothing of this machine's network is touched. What is written to a disk goes to another file. The
 * machine has one processor, because two wait for each other where this machine's own are busy. All of it stays on one
 * of those: a system call goes from process to process, and would wait for the other one to be free.
 */
export function startNative(kind, { project, console_, memoryMib }) {
  const { disk } = ensureMachine(kind);
  const directory = dirname(project);
  const drive = (name, file) => {
    const written = join(directory, name);
    rmSync(written, { force: true });
    return `${name}=${written},${file}`;
  };
  const [, processor] = /^Cpus_allowed_list:\s*(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'));
  const namespaces = ['unshare', '--pid', '--net', '--fork', '--kill-child', '--mount-proc'];
  return spawn(
    'setpriv',
    [
      ...['--pdeathsig', 'KILL', ...namespaces, 'sh', '-c', RUN, 'sh', processor],
      ...[ensureKernel(kind), 'seccomp=on', `mem=${memoryMib}M`, 'noreboot', `uml_dir=${directory}`],
      ...[drive('ubd0', disk), drive('ubd1', project), 'root=/dev/ubda', 'rw', 'vec0:transport=raw,ifname=machine'],
      ...['con=null', 'con0=null,fd:2', 'ssl=null', 'ssl1=null,fd:1', 'panic=-1'],
    ],
    { stdio: ['ignore', 'pipe', openSync(console_, 'w')] },
  );
}
