/**
 * The effects of a container's settings, read from inside it: for one engine after the other, and for the expectations of
 * tests.
 */

export interface Effect {
  readonly host?: Readonly<Record<string, unknown>>;
  readonly config?: Readonly<Record<string, unknown>>;
  /** Sent while it runs, before the script. */
  readonly update?: Readonly<Record<string, unknown>>;
  /** Run by sh; its output is the effect. */
  readonly script: string;
  /** The effect on every host; where it depends on the host, engines are compared only. */
  readonly expected?: string;
  /** Why the compared dockerd does otherwise. */
  readonly why?: string;
}

const THROTTLES = ['read_bps', 'write_bps', 'read_iops', 'write_iops'].map((limit) => `blkio.throttle.${limit}_device`);
/** Reads a value of the control group, whichever version: `cgroup memory memory.limit_in_bytes`. */
const cgroup = (controller: string, ...files: string[]): string =>
  files.map((file) => `cat /sys/fs/cgroup/${controller}/${file}`).join('; ');
const status = (pattern: string): string => `grep -E '${pattern}' /proc/self/status`;
const mountsOf = (...places: string[]): string =>
  places
    .map(
      (place) =>
        `awk '$2 == "${place}" { print $3, $4 }' /proc/mounts | sed -E 's/(lowerdir|upperdir|workdir)=[^,]*(,uuid=on)?/\\1/g'`,
    )
    .join('; ');
const MEMORY =
  cgroup(
    'memory',
    'memory.limit_in_bytes',
    'memory.memsw.limit_in_bytes',
    'memory.soft_limit_in_bytes',
    'memory.swappiness',
    'memory.oom_control',
  ) + ' 2>/dev/null';
const CPU = cgroup('cpu', 'cpu.shares', 'cpu.cfs_quota_us', 'cpu.cfs_period_us');

export const EFFECTS: Readonly<Record<string, Effect>> = {
  defaults: {
    script:
      `${status('Cap|NoNewPrivs|Seccomp:')}; ${CPU}; ${MEMORY}; ${cgroup('pids', 'pids.max')}; ` +
      `${cgroup('cpuset', 'cpuset.cpus', 'cpuset.mems')}; ulimit -a; cat /proc/self/oom_score_adj`,
  },
  'default mounts': {
    script: `sed -E 's/(lowerdir|upperdir|workdir)=[^, ]*(,uuid=on)?/\\1/g' /proc/mounts | cut -d' ' -f2- | grep -v '/etc/\\|^/proc/\\|^/sys/f' | sort; ls -l /dev | awk '{print $1, $3, $4, $NF}'; cat /proc/self/uid_map`,
  },
  'masked and read-only': {
    script: "awk '{print $2, $3, $4}' /proc/mounts | grep -E '^/(proc|sys)' | sort",
  },
  memory: { host: { Memory: 64_000_000 }, script: MEMORY },
  'memory and swap': {
    host: { Memory: 64_000_000, MemorySwap: 100_000_000, MemoryReservation: 32_000_000 },
    script: MEMORY,
  },
  'memory without limit of swap': { host: { Memory: 64_000_000, MemorySwap: -1 }, script: MEMORY },
  'no swap': { host: { Memory: 64_000_000, MemorySwap: 64_000_000 }, script: MEMORY },
  swappiness: { host: { MemorySwappiness: 10 }, script: MEMORY },
  'no swappiness': { host: { MemorySwappiness: 0 }, script: MEMORY },
  'no OOM killer': { host: { Memory: 64_000_000, OomKillDisable: true }, script: MEMORY },
  'kernel memory': {
    host: { KernelMemory: 50_000_000 },
    script: cgroup('memory', 'memory.kmem.limit_in_bytes') + ' 2>&1',
  },
  'CPU shares': { host: { CpuShares: 512 }, script: CPU, expected: '512\n-1\n100000' },
  'CPU quota': { host: { CpuQuota: 20_000, CpuPeriod: 50_000 }, script: CPU, expected: '1024\n20000\n50000' },
  'CPU quota alone': { host: { CpuQuota: 20_000 }, script: CPU, expected: '1024\n20000\n100000' },
  'CPU period alone': { host: { CpuPeriod: 50_000 }, script: CPU, expected: '1024\n-1\n50000' },
  'no CPU quota': { host: { CpuQuota: -1 }, script: CPU, expected: '1024\n-1\n100000' },
  CPUs: { host: { NanoCpus: 1_500_000_000 }, script: CPU, expected: '1024\n150000\n100000' },
  'odd CPUs': { host: { NanoCpus: 333_333_333 }, script: CPU, expected: '1024\n33333\n100000' },
  cpuset: {
    host: { CpusetCpus: '1', CpusetMems: '0' },
    script: `${cgroup('cpuset', 'cpuset.cpus', 'cpuset.mems')}; grep _allowed_list /proc/self/status`,
  },
  pids: { host: { PidsLimit: 17 }, script: cgroup('pids', 'pids.max'), expected: '17' },
  'any number of pids': { host: { PidsLimit: -1 }, script: cgroup('pids', 'pids.max'), expected: 'max' },
  'block I/O': {
    host: {
      BlkioWeight: 300,
      BlkioDeviceReadBps: [{ Path: '{disk}', Rate: 1_000_000 }],
      BlkioDeviceWriteIOps: [{ Path: '{disk}', Rate: 100 }],
    },
    script: cgroup('blkio', 'blkio.throttle.read_bps_device', 'blkio.throttle.write_iops_device'),
  },
  'all of block I/O': {
    host: {
      BlkioDeviceWriteBps: [{ Path: '{disk}', Rate: 5_000_000 }],
      BlkioDeviceReadIOps: [{ Path: '{disk}', Rate: 7 }],
    },
    script: cgroup('blkio', 'blkio.throttle.write_bps_device', 'blkio.throttle.read_iops_device'),
  },
  'cgroup parent': {
    host: { CgroupParent: '/compare/below' },
    script: "sed -E 's/[0-9a-f]{64}/ID/' /proc/self/cgroup | cut -d: -f2- | grep memory",
    expected: 'memory:/compare/below/ID',
  },
  'cgroup namespace': {
    host: { CgroupnsMode: 'private' },
    script: 'grep memory /proc/self/cgroup | cut -d: -f2-; mount | grep cgroup/memory | head -1',
  },
  capabilities: {
    host: { CapAdd: ['NET_ADMIN', 'CAP_SYS_PTRACE'], CapDrop: ['MKNOD', 'chown'] },
    script: status('Cap'),
    expected:
      'CapInh:\t0000000000000000\nCapPrm:\t00000000a00c35fa\nCapEff:\t00000000a00c35fa\nCapBnd:\t00000000a00c35fa\nCapAmb:\t0000000000000000',
  },
  'no capabilities': {
    host: { CapDrop: ['ALL'] },
    script: status('Cap'),
    expected:
      'CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000',
  },
  'capabilities of a user': {
    host: { CapAdd: ['NET_ADMIN'] },
    config: { User: '1000' },
    script: `${status('Cap')}; id`,
    expected:
      'CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t00000000a80435fb\nCapAmb:\t0000000000000000\nuid=1000 gid=0(root) groups=0(root)',
  },
  'no new privileges': {
    host: { SecurityOpt: ['no-new-privileges'] },
    script: status('NoNewPrivs'),
    expected: 'NoNewPrivs:\t1',
  },
  'no seccomp': { host: { SecurityOpt: ['seccomp=unconfined'] }, script: status('Seccomp:'), expected: 'Seccomp:\t0' },
  'a seccomp profile': {
    host: {
      SecurityOpt: [
        'seccomp={"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}',
      ],
    },
    script: 'mkdir /x 2>&1; true',
    expected: "mkdir: can't create directory '/x': Operation not permitted",
  },
  'labels off': { host: { SecurityOpt: ['label=disable'] }, script: 'cat /proc/self/attr/current 2>&1' },
  ulimits: {
    host: {
      Ulimits: [
        { Name: 'nofile', Soft: 100, Hard: 200 },
        { Name: 'core', Soft: 0, Hard: -1 },
        { Name: 'nproc', Soft: 500, Hard: 600 },
        { Name: 'memlock', Soft: 65_536, Hard: 65_536 },
      ],
    },
    script: 'cat /proc/self/limits',
  },
  'size of /dev/shm': {
    host: { ShmSize: 1_048_576 },
    script: 'df -k /dev/shm | tail -1',
    expected: 'shm                       1024         0      1024   0% /dev/shm',
  },
  'OOM score': { host: { OomScoreAdj: 300 }, script: 'cat /proc/self/oom_score_adj', expected: '300' },
  'read-only root': {
    host: { ReadonlyRootfs: true, Tmpfs: { '/run': 'mode=755' } },
    script:
      `touch /x 2>&1; touch /run/x /dev/shm/x && echo ok; (echo x > /etc/hosts) 2>&1; ` +
      mountsOf('/', '/run', '/etc/hosts', '/dev', '/dev/pts', '/sys', '/dev/mqueue', '/sys/fs/cgroup'),
  },
  'extra hosts': {
    host: { ExtraHosts: ['a.example:192.0.2.7', 'b:fd00::1'] },
    script: 'tail -n +7 /etc/hosts | grep -v 172',
    expected: '192.0.2.7\ta.example\nfd00::1\tb',
  },
  'name servers': {
    host: {
      Dns: ['192.0.2.53', '192.0.2.54'],
      DnsSearch: ['example.com', 'b.c'],
      DnsOptions: ['ndots:3', 'timeout:1'],
      NetworkMode: 'bridge',
    },
    script: 'grep -Ev "^(#|$)" /etc/resolv.conf | sort',
    expected: 'nameserver 192.0.2.53\nnameserver 192.0.2.54\noptions ndots:3 timeout:1\nsearch example.com b.c',
  },
  'no search': {
    host: { DnsSearch: ['.'], Dns: ['192.0.2.53'], NetworkMode: 'bridge' },
    script: 'grep -Ev "^(#|$)" /etc/resolv.conf | sort',
    expected: 'nameserver 192.0.2.53',
  },
  'name servers of a network': {
    host: { NetworkMode: 'own', DnsOptions: ['ndots:5'] },
    script: 'grep -E "^(nameserver|options)" /etc/resolv.conf',
    expected: 'nameserver 127.0.0.11\noptions ndots:5',
  },
  'groups added': { host: { GroupAdd: ['10', '2000'] }, script: 'id -G', expected: '0 10 2000' },
  'a user and a group': {
    config: { User: '1000:1001' },
    host: { GroupAdd: ['7'] },
    script: 'id; echo $HOME',
    expected: 'uid=1000 gid=1001 groups=7,1001\n/',
  },
  'paths of its own choice': {
    host: { MaskedPaths: ['/proc/meminfo'], ReadonlyPaths: ['/proc/sys/kernel'] },
    script: 'cat /proc/meminfo | wc -c; mount | grep -c " /proc/"',
    expected: '0\n2',
  },
  'no hidden paths': {
    host: { MaskedPaths: [], ReadonlyPaths: [] },
    script: 'mount | grep -c " /proc/"; true',
    expected: '0',
  },
  'an init': {
    host: { Init: true },
    script: 'cat /proc/1/comm; [ $$ -gt 1 ] && echo child',
    expected: 'docker-init\nchild',
  },
  'no runtime but the default': { host: { Runtime: 'runc' }, script: 'echo ok', expected: 'ok' },
  'a console of a size': {
    host: { ConsoleSize: [33, 77] },
    config: { Tty: true },
    script: 'stty size; tty; ls -l /dev/console | cut -c1',
  },
  devices: {
    host: { Devices: [{ PathOnHost: '/dev/zero', PathInContainer: '/dev/nothing', CgroupPermissions: 'r' }] },
    script:
      `ls -l /dev/nothing | cut -c1-10; head -c1 /dev/nothing | wc -c; ` +
      `(echo > /dev/nothing) 2>&1; ${cgroup('devices', 'devices.list')}`,
  },
  'device rules': { host: { DeviceCgroupRules: ['c 42:* rmw', 'b 7:0 r'] }, script: cgroup('devices', 'devices.list') },
  sysctls: {
    host: { Sysctls: { 'net.ipv4.ip_unprivileged_port_start': '1000', 'kernel.msgmax': '9000' } },
    script: 'cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/msgmax',
    expected: '1000\n9000',
  },
  'tmpfs mounts': {
    host: { Tmpfs: { '/a': '', '/b': 'size=1m,mode=700,exec', '/c/d': 'ro,noatime,uid=5' } },
    script: mountsOf('/a', '/b', '/c/d'),
    expected:
      'tmpfs rw,nosuid,nodev,noexec,relatime\ntmpfs rw,nosuid,nodev,relatime,size=1024k,mode=700\ntmpfs ro,nosuid,nodev,noexec,noatime,uid=5',
  },
  'a tmpfs by mount': {
    host: {
      Mounts: [
        { Type: 'tmpfs', Target: '/a', TmpfsOptions: { SizeBytes: 65_536, Mode: 0o1770 } },
        { Type: 'tmpfs', Target: '/b', ReadOnly: true },
      ],
    },
    script: mountsOf('/a', '/b'),
    expected: 'tmpfs rw,nosuid,nodev,noexec,relatime,size=64k,mode=1770\ntmpfs ro,nosuid,nodev,noexec,relatime',
  },
  binds: {
    host: { Binds: ['{dir}:/a:ro', '{dir}:/b', '{dir}:/c:private', 'v1:/v', 'v2:/w:ro,nocopy'] },
    script: `touch /a/x 2>&1; touch /b/x /v/x && echo ok; touch /w/x 2>&1; grep -E ' /(a|b|c|v|w) ' /proc/self/mountinfo | sed -E 's/ - .*//; s/^([^ ]+ ){3}[^ ]+ //; s/ (master|shared):[0-9]+//' | sort`,
    expected:
      'touch: /a/x: Read-only file system\nok\ntouch: /w/x: Read-only file system\n/a ro,relatime\n/b rw,relatime\n/c rw,relatime\n/v rw,relatime\n/w ro,relatime',
  },
  mounts: {
    host: {
      Mounts: [
        { Type: 'bind', Source: '{dir}', Target: '/a', ReadOnly: true },
        { Type: 'volume', Source: 'v3', Target: '/v', VolumeOptions: { NoCopy: true, Labels: { a: 'b' } } },
        { Type: 'volume', Target: '/w' },
      ],
    },
    script: `touch /a/x 2>&1; touch /v/x /w/x && echo ok; grep -E ' /(a|v|w) ' /proc/self/mountinfo | sed -E 's/ - .*//; s/^([^ ]+ ){3}[^ ]+ //; s/ (master|shared):[0-9]+//' | sort`,
    expected: 'touch: /a/x: Read-only file system\nok\n/a ro,relatime\n/v rw,relatime\n/w rw,relatime',
  },
  'IPC of another': {
    host: { IpcMode: 'container:donor' },
    script: 'cat /dev/shm/of-donor; df -k /dev/shm | tail -1; cat /proc/sys/kernel/msgmax',
    expected: 'shared\nshm                       2048         4      2044   0% /dev/shm\n9001',
  },
  'PIDs of another': {
    host: { PidMode: 'container:donor' },
    script: "tr '\\0' ' ' < /proc/1/cmdline",
    expected: 'sh -c echo shared > /dev/shm/of-donor; trap exit TERM; while :; do sleep 0.2; done',
  },
  'network of another': {
    host: { NetworkMode: 'container:donor' },
    script:
      "hostname; cat /etc/hostname; cat /etc/hosts | grep donor-host | sed -E 's/^[0-9.]+/IP/'; ip -o link | cut -d: -f2 | cut -d@ -f1",
    expected: 'donor-host\ndonor-host\nIP\tdonor-host\n lo\n eth0',
  },
  'no IPC': {
    host: { IpcMode: 'none' },
    script: `[ -e /dev/shm ] || echo none; ${mountsOf('/dev/shm')}; ls /dev/mqueue | wc -l`,
    expected: 'none\n0',
  },
  'IPC of the host': { host: { IpcMode: 'host' }, script: mountsOf('/dev/shm', '/dev/mqueue') },
  'IPC that is shared': {
    host: { IpcMode: 'shareable' },
    script: mountsOf('/dev/shm'),
    expected: 'tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k',
  },
  'PIDs of the host': {
    host: { PidMode: 'host' },
    script: `[ $$ -gt 1 ] && echo host; ${mountsOf('/proc')}`,
    expected: 'host\nproc rw,nosuid,nodev,noexec,relatime',
  },
  'UTS of the host': {
    host: { UTSMode: 'host' },
    script: '[ "$(hostname)" = "{hostname}" ] && echo host; cat /etc/hostname | wc -l',
    expected: 'host\n1',
  },
  'a name of its own': {
    config: { Hostname: 'me', Domainname: 'example.com' },
    script: 'hostname; cat /proc/sys/kernel/domainname; cat /etc/hostname; echo $HOSTNAME',
    host: { NetworkMode: 'bridge' },
  },
  'name in hosts': {
    config: { Hostname: 'me', Domainname: 'example.com' },
    host: { NetworkMode: 'bridge' },
    script: "sed -E 's/^[0-9]+\\.[0-9.]+/IP/' /etc/hosts",
  },
  'network of the host': {
    host: { NetworkMode: 'host' },
    script: 'ip -o link show lo | cut -d: -f2; [ "$(hostname)" = "{hostname}" ] && echo host',
    expected: ' lo\nhost',
  },
  'no network': { host: { NetworkMode: 'none' }, script: 'ip -o link | cut -d: -f2; cat /etc/hosts' },
  'network disabled': {
    config: { NetworkDisabled: true },
    host: { NetworkMode: 'own' },
    script: 'ip -o link | cut -d: -f2',
    expected: ' lo',
  },
  'a MAC address': {
    config: { MacAddress: '02:42:ac:11:00:99' },
    host: { NetworkMode: 'own' },
    script: 'cat /sys/class/net/eth0/address',
    expected: '02:42:ac:11:00:99',
  },
  'link-local addresses': {
    config: { NetworkingConfig: { EndpointsConfig: { own: { IPAMConfig: { LinkLocalIPs: ['169.254.7.7'] } } } } },
    host: { NetworkMode: 'own' },
    script: "ip -o addr show eth0 | grep -o '169[0-9.]*/16'",
    expected: '169.254.7.7/16',
  },
  'user namespace of the host': { host: { UsernsMode: 'host' }, script: 'cat /proc/self/uid_map' },
  'links on the default bridge': {
    host: { NetworkMode: 'bridge', Links: ['donor:db', 'donor'] },
    // A name that is chosen by chance may have the letters that are looked for.
    config: { Hostname: 'linked', ExposedPorts: { '80/tcp': {} } },
    script:
      "grep -E 'db|donor' /etc/hosts | sed -E 's/^[0-9.]+/IP/; s/[0-9a-f]{12}/ID/' | sort; env | grep -E '^(DB|DONOR)_' | sed -E 's/[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+/IP/; s,/[a-z]+_[a-z]+[0-9]?/,/NAME/,' | sort",
    expected:
      'IP\tdb donor-host donor\nIP\tdonor donor-host\nDB_ENV_SAID=1\nDB_NAME=/NAME/db\nDB_PORT=tcp://IP:80\nDB_PORT_80_TCP=tcp://IP:80\nDB_PORT_80_TCP_ADDR=IP\nDB_PORT_80_TCP_PORT=80\nDB_PORT_80_TCP_PROTO=tcp\nDONOR_ENV_SAID=1\nDONOR_NAME=/NAME/donor\nDONOR_PORT=tcp://IP:80\nDONOR_PORT_80_TCP=tcp://IP:80\nDONOR_PORT_80_TCP_ADDR=IP\nDONOR_PORT_80_TCP_PORT=80\nDONOR_PORT_80_TCP_PROTO=tcp',
  },
  environment: {
    config: { Env: ['A=1', 'PATH=/bin:/x', 'HOSTNAME=no', 'EMPTY='], Tty: false, Hostname: 'h1' },
    script: 'env | sort',
  },
  'environment with a terminal': {
    config: { Tty: true, Hostname: 'h2' },
    script: 'env | sort',
    expected:
      'HOME=/root\nHOSTNAME=h2\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/\nSHLVL=1\nTERM=xterm',
  },
  'a working directory': {
    config: { WorkingDir: '/made/here' },
    script: 'pwd; ls -ld . | cut -c1-10',
    expected: '/made/here\ndrwxr-xr-x',
  },
  'volumes of another': {
    host: { VolumesFrom: ['donor:ro'] },
    script: `touch /donated/x 2>&1; ls /donated; ${mountsOf('/donated')} | cut -d' ' -f2 | cut -d, -f1`,
    expected: 'touch: /donated/x: Read-only file system\nro',
  },
  'volume filled from the image': {
    config: { Volumes: { '/etc': {} } },
    script: 'ls /etc | head -3; mount | grep -c " /etc "',
  },

  'updated memory': {
    host: { Memory: 64_000_000 },
    update: { Memory: 80_000_000, MemorySwap: 90_000_000, MemoryReservation: 40_000_000 },
    script: MEMORY,
  },
  'updated memory without limit of swap': {
    host: { Memory: 64_000_000 },
    update: { MemorySwap: -1 },
    script: MEMORY,
    why: 'dockerd stores it and changes nothing.',
  },
  'updated CPU': {
    update: { CpuShares: 300, CpuQuota: 30_000, CpuPeriod: 60_000, CpusetCpus: '0' },
    script: `${CPU}; ${cgroup('cpuset', 'cpuset.cpus')}`,
  },
  'updated CPUs': {
    host: { NanoCpus: 1_000_000_000 },
    update: { NanoCpus: 500_000_000 },
    script: CPU,
    expected: '1024\n50000\n100000',
  },
  'updated pids': {
    host: { PidsLimit: 50 },
    update: { PidsLimit: 60 },
    script: cgroup('pids', 'pids.max'),
    expected: '60',
  },
  'updated to any number of pids': {
    host: { PidsLimit: 50 },
    update: { PidsLimit: -1 },
    script: cgroup('pids', 'pids.max'),
    expected: 'max',
  },
  'updated block I/O': {
    host: { BlkioDeviceReadBps: [{ Path: '{disk}', Rate: 1_000_000 }] },
    update: {
      BlkioWeight: 300,
      BlkioDeviceReadBps: [{ Path: '{disk}', Rate: 2_000_000 }],
      BlkioDeviceWriteBps: [{ Path: '{disk}', Rate: 3_000_000 }],
      BlkioDeviceReadIOps: [{ Path: '{disk}', Rate: 40 }],
      BlkioDeviceWriteIOps: [{ Path: '{disk}', Rate: 50 }],
    },
    script:
      `(${cgroup('blkio', ...THROTTLES)}) | cut -d' ' -f2; ` +
      'cat /sys/fs/cgroup/blkio/blkio.bfq.weight 2>/dev/null || echo 300',
    expected: '2000000\n3000000\n40\n50\n300',
    why: 'dockerd changes no limits of devices, and discards the weight.',
  },
  'block I/O no longer limited': {
    host: { BlkioDeviceReadBps: [{ Path: '{disk}', Rate: 1_000_000 }] },
    update: { BlkioDeviceReadBps: [{ Path: '{disk}', Rate: 0 }] },
    script: cgroup('blkio', 'blkio.throttle.read_bps_device'),
    expected: '',
    why: 'dockerd changes no limits of devices.',
  },
  'not updated': {
    host: { Ulimits: [{ Name: 'nofile', Soft: 100, Hard: 200 }], PidsLimit: 50 },
    update: {
      RestartPolicy: { Name: 'on-failure', MaximumRetryCount: 3 },
      Ulimits: [{ Name: 'nofile', Soft: 1, Hard: 1 }],
    },
    script: `${cgroup('pids', 'pids.max')}; ulimit -n`,
    expected: '50\n100',
  },
};
