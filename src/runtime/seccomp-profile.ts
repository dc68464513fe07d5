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

/**
 * In the order of their numbers on i386, the last first; those that i386 has not, or as parts of socketcall and ipc,
 * come behind. The filter is the same in any order, but libseccomp, which sorts the calls of each architecture as they
 * come, makes it sooner in this one: each process that starts in a container waits for that. socket, clone and
 * personality have rules of their own.
 */
const EVERYBODY = `
  removexattrat listxattrat getxattrat setxattrat mseal lsm_list_modules lsm_set_self_attr lsm_get_self_attr listmount
  statmount futex_requeue futex_wait futex_wake map_shadow_stack fchmodat2 cachestat futex_waitv process_mrelease
  memfd_secret landlock_restrict_self landlock_add_rule landlock_create_ruleset epoll_pwait2 faccessat2 openat2
  close_range pidfd_open pidfd_send_signal sched_rr_get_interval_time64 futex_time64 rt_sigtimedwait_time64
  semtimedop_time64 mq_timedreceive_time64 mq_timedsend_time64 recvmmsg_time64 io_pgetevents_time64 ppoll_time64
  pselect6_time64 utimensat_time64 timerfd_settime64 timerfd_gettime64 timer_settime64 timer_gettime64
  clock_nanosleep_time64 clock_getres_time64 clock_adjtime64 clock_gettime64 rseq io_pgetevents arch_prctl statx
  pkey_free pkey_alloc pkey_mprotect pwritev2 preadv2 copy_file_range mlock2 membarrier execveat memfd_create
  getrandom seccomp renameat2 sched_getattr sched_setattr process_vm_writev process_vm_readv syncfs clock_adjtime
  name_to_handle_at prlimit64 fanotify_mark rt_tgsigqueueinfo pwritev preadv inotify_init1 pipe2 dup3 epoll_create1
  eventfd2 signalfd4 timerfd_gettime timerfd_settime fallocate eventfd timerfd_create signalfd utimensat epoll_pwait
  getcpu vmsplice tee sync_file_range splice get_robust_list set_robust_list ppoll pselect6 faccessat fchmodat
  readlinkat symlinkat linkat renameat unlinkat fstatat64 futimesat fchownat mknodat mkdirat openat inotify_rm_watch
  inotify_add_watch inotify_init ioprio_get ioprio_set waitid mq_getsetattr mq_notify mq_timedreceive mq_timedsend
  mq_unlink mq_open fadvise64_64 utimes tgkill fstatfs64 statfs64 clock_nanosleep clock_getres clock_gettime
  timer_delete timer_getoverrun timer_gettime timer_settime timer_create set_tid_address remap_file_pages epoll_wait
  epoll_ctl epoll_create exit_group fadvise64 io_cancel io_submit io_getevents io_destroy io_setup get_thread_area
  set_thread_area sched_getaffinity sched_setaffinity futex sendfile64 tkill fremovexattr lremovexattr removexattr
  flistxattr llistxattr listxattr fgetxattr lgetxattr getxattr fsetxattr lsetxattr setxattr readahead gettid fcntl64
  getdents64 madvise mincore setfsgid32 setfsuid32 setgid32 setuid32 chown32 getresgid32 setresgid32 getresuid32
  setresuid32 fchown32 setgroups32 getgroups32 setregid32 setreuid32 getegid32 geteuid32 getgid32 getuid32 lchown32
  fstat64 lstat64 stat64 ftruncate64 truncate64 mmap2 ugetrlimit vfork sendfile sigaltstack capset capget getcwd chown
  pwrite64 pread64 rt_sigsuspend rt_sigqueueinfo rt_sigtimedwait rt_sigpending rt_sigprocmask rt_sigaction
  rt_sigreturn prctl getresgid setresgid poll getresuid setresuid mremap nanosleep sched_rr_get_interval
  sched_get_priority_min sched_get_priority_max sched_yield sched_getscheduler sched_setscheduler sched_getparam
  sched_setparam munlockall mlockall munlock mlock fdatasync getsid writev readv msync flock _newselect getdents
  _llseek setfsgid setfsuid fchdir getpgid sigprocmask mprotect adjtimex uname sigreturn fsync ipc sysinfo wait4 fstat
  lstat stat getitimer setitimer socketcall fstatfs statfs setpriority getpriority fchown fchmod ftruncate truncate
  munmap mmap readlink symlink select setgroups getgroups gettimeofday getrusage getrlimit setrlimit setregid setreuid
  setsid getpgrp getppid dup2 umask setpgid fcntl ioctl getegid geteuid getgid setgid brk times pipe dup rmdir mkdir
  rename kill sync access utime pause alarm ptrace getuid setuid getpid lseek lchown chmod mknod time chdir execve
  unlink link creat waitpid close open write read fork exit restart_syscall bind connect listen accept getsockname
  getpeername socketpair send recv sendto recvfrom shutdown setsockopt getsockopt sendmsg recvmsg accept4 recvmmsg
  sendmmsg semop semget semctl semtimedop msgsnd msgrcv msgget msgctl shmat shmdt shmget shmctl epoll_ctl_old
  epoll_wait_old newfstatat uretprobe`;

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
