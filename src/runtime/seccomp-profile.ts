/**
 * The default seccomp profile: the calls that the known container engines allow, and the capability that a call needs.
 * A call that is not listed fails with EPERM. The runtime skips names that the host's libseccomp does not know.
 */
import type { SeccompProfile, SeccompRule } from './seccomp.js';

const EPERM = 1;
const ENOSYS = 38;
const AF_ALG = 38;
const AF_VSOCK = 40;
/**
 * The CLONE_NEW* flags of clone(2) without CLONE_NEWTIME. Making a namespace needs the right to administer the system.
 */
const CLONE_NAMESPACES = 0x7e020000;
/** Linux, its 32-bit, UNAME26 and combined personas, and the query 0xffffffff (man 2 personality). */
const PERSONAS = [0x0, 0x8, 0x20000, 0x20008, 0xffffffff];

const allow = (names: string, rest: Partial<SeccompRule> = {}): SeccompRule => ({
  names: names.trim().split(/\s+/),
  action: 'SCMP_ACT_ALLOW',
  ...rest,
});
const withCapability = (capability: string, names: string): SeccompRule =>
  allow(names, { includes: { caps: [capability] } });
const onArchitecture = (arches: readonly string[], names: string): SeccompRule =>
  allow(names, { includes: { arches } });
const s390 = ['s390', 's390x'];

const EVERYBODY = [
  // Files and directories.
  `access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
    fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl
    fcntl64 fdatasync flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd
    getdents getdents64 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lchown32 link
    linkat listmount _llseek lseek lstat lstat64 mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open
    openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat
    readv rename renameat renameat2 rmdir sendfile sendfile64 splice stat stat64 statfs statfs64 statmount statx
    symlink symlinkat sync sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat
    utimensat_time64 utimes vmsplice write writev`,
  // Extended attributes.
  `fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr
    lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat`,
  // Waiting for descriptors, asynchronous input and output.
  `epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit _newselect poll
    ppoll ppoll_time64 pselect6 pselect6_time64 select`,
  // Sockets. socket(2) itself has a rule of its own.
  `accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64
    recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair`,
  // Memory.
  `brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap
    mmap2 mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease
    remap_file_pages`,
  // Processes and threads. clone(2) has rules of its own.
  `arch_prctl capget capset execve execveat exit exit_group fork getcpu getpgid getpgrp getpid getppid getpriority
    get_robust_list getsid get_thread_area gettid ioprio_get ioprio_set kill pause pidfd_open pidfd_send_signal
    prctl restart_syscall rseq sched_getaffinity sched_getattr sched_getparam sched_get_priority_max
    sched_get_priority_min sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield setpgid setpriority set_robust_list setsid
    set_thread_area set_tid_address tgkill tkill vfork wait4 waitid waitpid`,
  // Users, groups and limits.
  `getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32 getresuid
    getresuid32 getrlimit getrusage getuid getuid32 prlimit64 setfsgid setfsgid32 setfsuid setfsuid32 setgid
    setgid32 setgroups setgroups32 setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid
    setreuid32 setrlimit setuid setuid32 ugetrlimit`,
  // Security modules that a program restricts itself with.
  `landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules
    lsm_set_self_attr seccomp`,
  // Signals.
  `rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack signalfd signalfd4 sigprocmask sigreturn uretprobe`,
  // Time.
  `adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
    clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
    timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
    timerfd_gettime64 timerfd_settime timerfd_settime64 times`,
  // Locks, queues, semaphores, shared memory.
  `futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake ipc mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd
    semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget`,
  // The rest.
  `getrandom sysinfo uname process_vm_readv process_vm_writev ptrace`,
].join(' ');

const ADMINISTRATOR = `bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount
  mount_setattr move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname
  sethostname setns syslog umount umount2 unshare`;

const namespacelessClone = (argument: number, rest: Pick<SeccompRule, 'includes' | 'excludes'>): SeccompRule =>
  allow('clone', {
    args: [{ index: argument, value: CLONE_NAMESPACES, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }],
    ...rest,
  });

/**
 * Returns the profile for a kernel with or without the x32 ABI. Each process that starts in a container waits until the
 * filter is compiled, and x32 takes more than half of that time: the time grows with the square of what counts as one
 * architecture, and x32 is part of x86-64 there. If no x32 program can run, a call by its number ends the process.
 */
export const defaultSeccompProfile = (x32: boolean): SeccompProfile => ({
  defaultAction: 'SCMP_ACT_ERRNO',
  defaultErrnoRet: EPERM,
  archMap: [
    { architecture: 'SCMP_ARCH_X86_64', subArchitectures: ['SCMP_ARCH_X86', ...(x32 ? ['SCMP_ARCH_X32'] : [])] },
    { architecture: 'SCMP_ARCH_AARCH64', subArchitectures: ['SCMP_ARCH_ARM'] },
    { architecture: 'SCMP_ARCH_S390X', subArchitectures: ['SCMP_ARCH_S390'] },
    { architecture: 'SCMP_ARCH_PPC64LE', subArchitectures: [] },
    { architecture: 'SCMP_ARCH_RISCV64', subArchitectures: [] },
  ],
  syscalls: [
    allow(EVERYBODY),
    // AF_ALG is the kernel's cryptography, by which processes could write to files that they may only read
    // (CVE-2026-31431). AF_VSOCK reaches the hypervisor and other guests past every network namespace. A rule cannot
    // refuse two values of an argument, so rules allow what is below, between and above them.
    allow('socket', { args: [{ index: 0, value: AF_ALG, op: 'SCMP_CMP_LT' }] }),
    allow('socket', { args: [{ index: 0, value: AF_ALG + 1, op: 'SCMP_CMP_EQ' }] }),
    allow('socket', { args: [{ index: 0, value: AF_VSOCK, op: 'SCMP_CMP_GT' }] }),
    ...PERSONAS.map((value) => allow('personality', { args: [{ index: 0, value, op: 'SCMP_CMP_EQ' }] })),
    onArchitecture(['ppc64le'], 'sync_file_range2 swapcontext'),
    onArchitecture(
      ['arm', 'arm64'],
      'arm_fadvise64_64 arm_sync_file_range sync_file_range2 breakpoint cacheflush set_tls',
    ),
    onArchitecture(['amd64', 'x32', 'x86'], 'modify_ldt'),
    onArchitecture(s390, 's390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr'),
    onArchitecture(['riscv64'], 'riscv_flush_icache riscv_hwprobe'),
    withCapability('CAP_DAC_READ_SEARCH', 'open_by_handle_at'),
    withCapability('CAP_SYS_ADMIN', ADMINISTRATOR),
    namespacelessClone(0, { excludes: { caps: ['CAP_SYS_ADMIN'], arches: s390 } }),
    // s390 has the flags in the second argument.
    namespacelessClone(1, { includes: { arches: s390 }, excludes: { caps: ['CAP_SYS_ADMIN'] } }),
    // The flags are behind a pointer, which a filter cannot follow; with ENOSYS, C libraries use clone instead.
    { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS, excludes: { caps: ['CAP_SYS_ADMIN'] } },
    withCapability('CAP_SYS_BOOT', 'reboot'),
    withCapability('CAP_SYS_CHROOT', 'chroot'),
    withCapability('CAP_SYS_MODULE', 'delete_module init_module finit_module'),
    withCapability('CAP_SYS_PACCT', 'acct'),
    withCapability('CAP_SYS_PTRACE', 'kcmp pidfd_getfd process_madvise'),
    withCapability('CAP_SYS_RAWIO', 'iopl ioperm'),
    withCapability('CAP_SYS_TIME', 'settimeofday stime clock_settime clock_settime64'),
    withCapability('CAP_SYS_TTY_CONFIG', 'vhangup'),
    withCapability('CAP_SYS_NICE', 'get_mempolicy mbind set_mempolicy set_mempolicy_home_node'),
    withCapability('CAP_SYSLOG', 'syslog'),
    withCapability('CAP_BPF', 'bpf'),
    withCapability('CAP_PERFMON', 'perf_event_open'),
  ],
});
