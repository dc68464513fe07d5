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
  run(
    'variables and names',
    'ENV A=b',
    'ARG C=d',
    'RUN env | grep -v ^SHLVL | sort > /o && hostname > /n && cat /etc/hosts > /h',
  ),
  run(
    'what is at hand',
    'RUN umask > /o && ulimit -n > /n && (test -t 0 || echo none >> /o) && cat >> /o && ' +
      'grep -E "^(Cap|NoNew|Seccomp:)" /proc/self/status > /rights && ls /dev | sort > /devices; ' +
      'ls -a /proc/acpi /proc/scsi /sys/firmware > /hidden 2>&1; touch /proc/sys/x 2>> /hidden; true',
  ),
  // The type of a mounted file is that of the file system where the tests run.
  run(
    'what is mounted',
    `RUN awk '{print $2, ($2 ~ "^/etc/" ? "file" : $3)}' /proc/mounts | grep -v ' cgroup' | sort > /o`,
  ),
  {
    ...run(
      'what is given',
      "RUN cat /etc/hosts > /h && ulimit -n > /n && df -k /dev/shm | awk 'NR==2{print $2}' > /shm",
    ),
    options: { 'extra-hosts': { one: '1.2.3.4' }, ulimits: ['nofile=100:200'], 'shm-size': '8m' },
  },
  run('no network', 'RUN --network=none ls /sys/class/net > /o'),
  { ...run('no network for all', 'RUN ls /sys/class/net > /o'), options: { network: 'none' } },
  failing('security is a flag of labs', 'RUN --security=insecure true'),
];

const LAYERS: readonly TableCase[] = [
  run(
    'files of each kind, modes and times',
    'RUN mkdir -m 2775 /t && cd /t && echo a > a && ln a b && ln -s a c && mkfifo f && mknod n c 1 3 && ' +
      'chown 3:4 a && chmod 4755 a && chmod 700 /etc && chown 5 /tmp && touch -t 200101010000 /etc/motd && ' +
      'touch -t 200102030405 /a && mkdir /d && touch -t 200202030405 /d',
  ),
  run('files that go and come back', 'RUN rm /etc/motd && rm -r /home /var && mkdir /var && touch /var/x'),
  run(
    'files of the engine',
    'RUN echo x > /etc/hosts; echo y > /etc/resolv.conf; touch /dev/x /tmp/y; ls -a / > /tmp/ls',
  ),
  run(
    'files that come and go, and a directory in the place of a file',
    'RUN touch /a /b && rm /a && rm /etc/motd && mkdir /etc/motd',
    'RUN rm /b && rmdir /etc/motd && ln -s x /etc/motd',
  ),
];

const SECRETS = { one: 'the secret\n', two: '2' };

const MOUNTS: readonly TableCase[] = [
  {
    name: 'run mounts of the context, a stage, an image and a context',
    dockerfile: stages(
      'FROM scratch AS a',
      'COPY f /f',
      shell(
        `RUN --mount=target=/m --mount=from=a,dst=/a --mount=from=${BASE},source=/etc,target=/i ` +
          '--mount=from=more,target=/c cat /m/f /a/f /i/motd /c/n > /o && touch /m/x 2>/dev/null || echo ro >> /o',
      ),
    ),
    files: { f: 'f' },
    contexts: { more: { n: 'n' } },
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
      'mounts of a part',
      'RUN --mount=source=d,target=/m --mount=source=d/e,target=/deep/m ls /m > /o && cat /deep/m >> /o',
    ),
    files: { 'd/e': 'e' },
  },
  { ...run('a mount below the working directory', 'WORKDIR /w', 'RUN --mount=target=m ls m > o'), files: { f: 'f' } },
  run(
    'a mount in memory',
    "RUN --mount=type=tmpfs,target=/m,size=1m echo x > /m/x && df -k /m | awk 'NR==2{print $2}' > /o",
  ),
  run(
    'a cache',
    'RUN --mount=type=cache,target=/c echo x > /c/x && ls -ld /c | cut -c1-10 > /o',
    'RUN --mount=type=cache,target=/c cat /c/x >> /o',
  ),
  {
    name: 'run caches with owner and mode, that begin with files, and by variables',
    dockerfile: stages(
      'FROM scratch AS a',
      'COPY f /s/f',
      shell(
        'ARG T=/m I=v',
        'RUN --mount=type=cache,id=own,target=/own,uid=5,gid=6,mode=0711 ' +
          '--mount=type=cache,id=begun,from=a,source=/s,target=/c --mount=type=cache,id=$I,target=$T ' +
          'ls -ldn /own | cut -c1-25 > /o && cat /c/f >> /o && ls -d $T >> /o',
      ),
    ),
    files: { f: 'f' },
  },
  { ...run('a cache that is read', 'RUN --mount=type=cache,id=read,target=/c,ro touch /c/x'), fails: true },
  {
    ...run(
      'secrets as files, with owner and place, as a variable, and one that is not there',
      'RUN --mount=type=secret,id=one --mount=type=secret,id=one,target=/s/x,uid=5,gid=6,mode=0440 ' +
        '--mount=type=secret,id=two,env=TWO --mount=type=secret,id=none ' +
        'cat /run/secrets/one > /o && ls -ln /run/secrets/one /s/x | cut -c1-25 >> /o && echo $TWO >> /o; ' +
        'ls /run/secrets >> /o',
    ),
    secrets: SECRETS,
  },
  {
    ...run(
      'a secret below the working directory',
      'WORKDIR /w',
      'RUN --mount=type=secret,id=one,target=in/s cat in/s > o',
    ),
    secrets: SECRETS,
  },
  {
    ...run(
      'a secret as variable and file',
      'RUN --mount=type=secret,id=two,env=TWO,target=/s cat /s > /o && echo $TWO >> /o',
    ),
    secrets: SECRETS,
  },
  failing('a secret that is needed', 'RUN --mount=type=secret,id=none,required true'),
  failing('an agent that is needed', 'RUN --mount=type=ssh,required true'),
  run('an agent that is not there', 'RUN --mount=type=ssh echo "<$SSH_AUTH_SOCK>" > /o'),
  failing('a mount of nothing', 'RUN --mount=source=none,target=/m true'),
  {
    ...run(
      'several mounts, one over files',
      'COPY f /m/own',
      'RUN --mount=target=/m --mount=type=tmpfs,target=/m2 --mount=type=cache,target=/m3 ' +
        'ls -d /m* > /o && ls -A /m >> /o',
    ),
    files: { f: 'f' },
  },
];

export const RUN_CASES = [...COMMANDS, ...SURROUNDINGS, ...LAYERS, ...MOUNTS];
