/** RUN: commands, their surroundings, mounts, and the layers that they leave. */
import { BASE, shell, stages, type TableCase } from '../case.js';

const run = (name: string, ...lines: readonly string[]): TableCase => ({
  name: `run ${name}`,
  dockerfile: shell(...lines),
});
const failing = (name: string, ...lines: readonly string[]): TableCase => ({ ...run(name, ...lines), fails: true });

const COMMANDS: readonly TableCase[] = [
  run('a line', 'RUN echo "a  $HOME" b > /o'),
  run('words', 'RUN ["sh", "-c", "echo $0 > /o", "zero"]'),
  run('lines that go on', 'RUN echo a \\', '  # a comment', '  b \\', '', '  > /o'),
  run('a document', 'RUN <<EOF', 'echo one > /o', 'echo "$HOME" >> /o', 'EOF'),
  run('a document with a program', 'RUN <<EOF', '#!/bin/cat', 'text', 'EOF'),
  run('a document that a program reads', 'RUN cat <<EOF > /o', 'text $HOME', 'EOF'),
  run('two documents', 'RUN cat <<A > /a; cat <<"B" > /b', 'in $HOME', 'A', 'in $HOME', 'B'),
  failing('a document that fails', 'RUN <<EOF', 'echo one', 'exit 3', 'EOF'),
  failing('a command that fails', 'RUN exit 7'),
  failing('a program that is not there', 'RUN ["nope"]'),
  failing('a command that is killed', "RUN sh -c 'kill -9 $$'; exit $?"),
  failing('a command without a shell', 'FROM scratch', 'RUN echo'),
  run('nothing that is changed', 'RUN true', 'RUN true'),
  run('a user', 'USER daemon', 'RUN id > /tmp/o && echo $HOME $USER >> /tmp/o'),
  run('a user by number', 'USER 77:88', 'RUN id > /tmp/o && echo $HOME >> /tmp/o'),
  failing('a user who is unknown', 'USER who', 'RUN true'),
  run('a directory that is gone', 'WORKDIR /w', 'RUN rmdir /w', 'RUN pwd > /o'),
];

const SURROUNDINGS: readonly TableCase[] = [
  run('variables', 'ENV A=b', 'ARG C=d', 'RUN env | grep -v ^SHLVL | sort > /o'),
  run('names and hosts', 'RUN hostname > /o && cat /etc/hosts > /h'),
  run('what is at hand', 'RUN umask > /o && ulimit -n > /n && (test -t 0 || echo none >> /o) && cat >> /o'),
  run('rights', 'RUN grep -E "^(Cap|NoNew|Seccomp:)" /proc/self/status > /o'),
  // The type of a mounted file is that of the file system where the tests run.
  run(
    'what is mounted',
    `RUN awk '{print $2, ($2 ~ "^/etc/" ? "file" : $3)}' /proc/mounts | grep -v ' cgroup' | sort > /o`,
  ),
  run('devices', 'RUN ls /dev | sort > /o'),
  run(
    'places that are hidden',
    'RUN ls -a /proc/acpi /proc/scsi /sys/firmware > /o 2>&1; touch /proc/sys/x 2>>/o; true',
  ),
  { ...run('hosts that are given', 'RUN cat /etc/hosts > /h'), options: { 'extra-hosts': { one: '1.2.3.4' } } },
  { ...run('limits that are given', 'RUN ulimit -n > /o'), options: { ulimits: ['nofile=100:200'] } },
  {
    ...run('shared memory that is given', "RUN df -k /dev/shm | awk 'NR==2{print $2}' > /o"),
    options: { 'shm-size': '8m' },
  },
  run('no network', 'RUN --network=none ls /sys/class/net > /o'),
  { ...run('no network for all', 'RUN ls /sys/class/net > /o'), options: { network: 'none' } },
  failing('security is a flag of labs', 'RUN --security=insecure true'),
];

const LAYERS: readonly TableCase[] = [
  run(
    'files of each kind',
    'RUN mkdir -m 2775 /t && cd /t && echo a > a && ln a b && ln -s a c && mkfifo f && mknod n c 1 3 && ' +
      'chown 3:4 a && chmod 4755 a',
  ),
  run('files that go', 'RUN rm /etc/motd && rm -r /home'),
  run('files that come back', 'RUN rm -r /var && mkdir /var && touch /var/x'),
  run('files that come and go', 'RUN touch /a /b && rm /a', 'RUN rm /b'),
  run(
    'files of the engine',
    'RUN echo x > /etc/hosts; echo y > /etc/resolv.conf; touch /dev/x /tmp/y; ls -a / > /tmp/ls',
  ),
  run('modes that change', 'RUN chmod 700 /etc && chown 5 /tmp && touch -t 200101010000 /etc/motd'),
  run(
    'a directory in the place of a file',
    'RUN rm /etc/motd && mkdir /etc/motd',
    'RUN rmdir /etc/motd && ln -s x /etc/motd',
  ),
  run('times', 'RUN touch -t 200102030405 /a && mkdir /d && touch -t 200202030405 /d'),
];

const SECRETS = { one: 'the secret\n', two: '2' };

const MOUNTS: readonly TableCase[] = [
  {
    ...run('a mount of the context', 'RUN --mount=target=/m cat /m/f > /o && touch /m/x 2>/dev/null || echo ro >> /o'),
    files: { f: 'f' },
  },
  {
    ...run(
      'a mount that is written',
      'RUN --mount=target=/m,rw echo x > /m/f && cat /m/f > /o',
      'RUN --mount=target=/m cat /m/f >> /o',
    ),
    files: { f: 'f' },
  },
  {
    ...run(
      'a mount of a part',
      'RUN --mount=source=d,target=/m ls /m > /o',
      'RUN --mount=source=d/e,target=/deep/m cat /deep/m >> /o',
    ),
    files: { 'd/e': 'e' },
  },
  {
    name: 'run a mount of a stage',
    dockerfile: stages('FROM scratch AS a', 'COPY f /f', shell('RUN --mount=from=a,dst=/m cat /m/f > /o')),
    files: { f: 'f' },
  },
  run('a mount of an image', `RUN --mount=from=${BASE},source=/etc,target=/m cat /m/motd > /o`),
  { ...run('a mount of a context', 'RUN --mount=from=more,target=/m cat /m/n > /o'), contexts: { more: { n: 'n' } } },
  { ...run('a mount below the working directory', 'WORKDIR /w', 'RUN --mount=target=m ls m > o'), files: { f: 'f' } },
  run(
    'a mount in memory',
    "RUN --mount=type=tmpfs,target=/m,size=1m echo x > /m/x && df -k /m | awk 'NR==2{print $2}' > /o",
    'RUN ls /m >> /o 2>&1 || true',
  ),
  run(
    'a cache',
    'RUN --mount=type=cache,target=/c echo x > /c/x && ls -ld /c | cut -c1-10 > /o',
    'RUN --mount=type=cache,target=/c cat /c/x >> /o',
    'RUN ls /c >> /o 2>&1 || true',
  ),
  run(
    'a cache with owner and mode',
    'RUN --mount=type=cache,id=own,target=/c,uid=5,gid=6,mode=0711 ls -ldn /c | cut -c1-25 > /o',
  ),
  {
    name: 'run a cache that begins with files',
    dockerfile: stages(
      'FROM scratch AS a',
      'COPY f /s/f',
      shell('RUN --mount=type=cache,id=begun,from=a,source=/s,target=/c cat /c/f > /o'),
    ),
    files: { f: 'f' },
  },
  { ...run('a cache that is read', 'RUN --mount=type=cache,id=read,target=/c,ro touch /c/x'), fails: true },
  {
    ...run(
      'a secret',
      'RUN --mount=type=secret,id=one cat /run/secrets/one > /o && ls -ln /run/secrets/one | cut -c1-25 >> /o',
    ),
    secrets: SECRETS,
  },
  {
    ...run(
      'a secret with owner and place',
      'RUN --mount=type=secret,id=one,target=/s/x,uid=5,gid=6,mode=0440 ls -ln /s/x | cut -c1-25 > /o',
    ),
    secrets: SECRETS,
  },
  { ...run('a secret as a variable', 'RUN --mount=type=secret,id=two,env=TWO echo $TWO > /o'), secrets: SECRETS },
  {
    ...run(
      'a secret as variable and file',
      'RUN --mount=type=secret,id=two,env=TWO,target=/s cat /s > /o && echo $TWO >> /o',
    ),
    secrets: SECRETS,
  },
  run('a secret that is not there', 'RUN --mount=type=secret,id=none ls /run/secrets > /o 2>&1 || true'),
  failing('a secret that is needed', 'RUN --mount=type=secret,id=none,required true'),
  failing('an agent that is needed', 'RUN --mount=type=ssh,required true'),
  run('an agent that is not there', 'RUN --mount=type=ssh echo "<$SSH_AUTH_SOCK>" > /o'),
  failing('a mount of nothing', 'RUN --mount=source=none,target=/m true'),
  run('mounts with variables', 'ARG T=/m I=v', 'RUN --mount=type=cache,id=$I,target=$T ls -d $T > /o'),
  {
    ...run(
      'several mounts',
      'RUN --mount=target=/m --mount=type=tmpfs,target=/m2 --mount=type=cache,target=/m3 ls -d /m* > /o',
    ),
    files: { f: 'f' },
  },
  {
    ...run(
      'a mount over files',
      'RUN mkdir /m && touch /m/own',
      'RUN --mount=target=/m ls -A /m > /o',
      'RUN ls /m >> /o',
    ),
    files: { f: 'f' },
  },
];

export const RUN_CASES = [...COMMANDS, ...SURROUNDINGS, ...LAYERS, ...MOUNTS];
