/** Dockerfiles as people type them: several instructions that have to do with each other. */
import { BASE, scratch, shell, stages, type TableCase } from '../case.js';
import { TAR_GZ } from '../archives.js';

const PROJECT = {
  'package.json': '{}',
  'src/index.js': 'index',
  'src/.hidden': 'hidden',
  'src/lib/a.js': 'a',
  'docs/README.md': 'readme',
  'docs/more.md': 'more',
  'node_modules/x/package.json': 'x',
  '.git/HEAD': 'head',
  '.env': 'A=1',
  'run.sh': { text: '#!/bin/sh\necho run\n', mode: 0o755 },
};

const IGNORE =
  '# what is made\n\n**/node_modules\n.git\n*.env\n.env\ndocs/*.md\n!docs/README.md\nDockerfile\n  run.*  \n';

const COPIES: readonly TableCase[] = [
  { name: 'typed: a file that may be missing', dockerfile: shell('WORKDIR /app', 'COPY package.json yarn.lock* ./') },
  {
    name: 'typed: a file that may be missing, in JSON',
    dockerfile: shell('WORKDIR /app', 'COPY ["package.json", "package-lock.json*", "./"]'),
  },
  {
    name: 'typed: everything but what is ignored',
    dockerfile: scratch('COPY . .'),
    files: { '.dockerignore': IGNORE },
  },
  { name: 'typed: names that begin with a dot', dockerfile: scratch('COPY .* /x/', 'COPY src/.* src/* /y/') },
  { name: 'typed: names but some', dockerfile: scratch('COPY [^a-m.]* /x/') },
  { name: 'typed: modes in letters', dockerfile: scratch('COPY --chmod=u=rwX,go=rX . /x', 'COPY --chmod=+x src /y') },
  { name: 'typed: a mode without digits of the group', dockerfile: scratch('COPY --chmod=7 run.sh /x') },
  { name: 'typed: to the place where it stands', dockerfile: scratch('COPY package.json .', 'COPY src .') },
  { name: 'typed: to a place that ends in a dot', dockerfile: scratch('COPY src /x/.', 'COPY run.sh /x/y/.') },
  {
    name: 'typed: a user of its own',
    dockerfile: shell(
      'ARG UID=1000',
      'RUN echo "app:x:$UID:$UID::/home/app:/bin/sh" >> /etc/passwd && echo "app:x:$UID:" >> /etc/group',
      'WORKDIR /home/app/work',
      'COPY --chown=app:app src ./src',
      'USER app',
      'WORKDIR more',
      'COPY run.sh .',
      'RUN id -un > who && touch mine',
    ),
  },
  {
    name: 'typed: an archive with an owner and a mode',
    dockerfile: scratch('ADD --chown=3:4 --chmod=700 a.tgz /x/', 'ADD --chown=3:4 a.tgz /y/'),
    files: { 'a.tgz': { base64: TAR_GZ } },
  },
  {
    name: 'typed: an archive that stays packed',
    dockerfile: scratch('ADD --unpack=false a.tgz /x/', 'COPY a.tgz /y/', 'ADD --unpack a.tgz /z/'),
    files: { 'a.tgz': { base64: TAR_GZ } },
  },
  {
    name: 'typed: names of one link and of one pipe in a stage',
    dockerfile: stages(
      shell('RUN mkdir /s && ln -s f /s/a && ln /s/a /s/b && mkfifo /s/p && ln /s/p /s/q'),
      'FROM scratch',
      'COPY --from=0 /s /x',
    ),
  },
  {
    name: 'typed: a file over a link of the base, and below one',
    dockerfile: shell('RUN mkdir /t && ln -s /t /l && ln -s /t/f /g', 'COPY package.json /l/', 'COPY run.sh /g'),
  },
];

const STAGES: readonly TableCase[] = [
  {
    name: 'typed: a program that is built',
    dockerfile: stages(
      `FROM ${BASE} AS Build`,
      'WORKDIR /src',
      'COPY package.json ./',
      'RUN echo deps > deps',
      'COPY . .',
      'RUN cat deps src/index.js > out && chmod 755 out',
      'FROM build AS test',
      'RUN exit 9',
      'FROM scratch AS final',
      'COPY --from=BUILD /src/out /bin/',
      'ENTRYPOINT ["/bin/out"]',
      'CMD ["--help"]',
    ),
  },
  {
    name: 'typed: a chain of stages with variables',
    dockerfile: stages(
      'ARG VARIANT=busybox',
      `FROM test/\${VARIANT}:1.0 AS base`,
      'ARG VARIANT',
      'ENV FROM_BASE=$VARIANT PATH="/opt/bin:${PATH}"',
      'FROM base AS next',
      'ARG FROM_BASE=hidden',
      'ENV NEXT=${FROM_BASE}-next',
      'FROM next',
      'LABEL v=$VARIANT n=$NEXT p=$PATH',
    ),
  },
  {
    name: 'typed: triggers of a stage that copy and run',
    dockerfile: stages(
      `FROM ${BASE} AS base`,
      'ONBUILD COPY package.json /app/',
      'ONBUILD RUN cat /app/package.json > /seen',
      'ONBUILD ENV TRIGGERED=1',
      'FROM base',
      'RUN echo $TRIGGERED >> /seen',
    ),
  },
];

const RUNS: readonly TableCase[] = [
  {
    name: 'typed: a long command with comments',
    dockerfile: shell(
      'RUN set -eux; \\',
      '    # first',
      '    echo one > /o; \\',
      '',
      '    # then',
      '    echo two >> /o',
    ),
  },
  {
    name: 'typed: a document with a condition',
    dockerfile: shell(
      'ARG MODE=prod',
      'RUN <<EOT',
      'set -e',
      'if [ "$MODE" = prod ]; then',
      '  echo p > /o',
      'fi',
      'EOT',
    ),
  },
  {
    name: 'typed: a document for another shell',
    dockerfile: shell('SHELL ["/bin/sh", "-eu", "-c"]', 'RUN <<-"END" cat > /o', '\t$HOME', '\t\ttext', '\tEND'),
  },
  {
    name: 'typed: a configuration whose variables are lost',
    dockerfile: scratch('COPY <<EOF /etc/default.conf', 'try_files $uri $uri/ =404;', 'a \\$b "$c" \\\\', 'EOF'),
  },
  {
    name: 'typed: what a command does to files of the base',
    dockerfile: shell(
      'RUN mkdir -p /d/e /m && echo 1 > /d/f && echo 2 > /d/e/g && echo 3 > /m/h',
      'RUN rm -rf /d/e && mkdir /d/e && mv /m /n && chmod 600 /d/f && ln /n/h /n/i && rm /etc/group',
      'RUN echo again > /d/e/g && rm /n/i',
    ),
  },
  {
    name: 'typed: files in a volume after it is named',
    dockerfile: shell('RUN mkdir /v', 'VOLUME ["/v", "/w"]', 'RUN echo 1 > /v/f', 'COPY package.json /v/'),
  },
  {
    name: 'typed: mounts side by side',
    dockerfile: shell(
      'WORKDIR /w',
      'RUN --mount=type=bind,target=/src,rw --mount=type=tmpfs,target=/tmp ' +
        '--mount=type=cache,target=/root/.cache,uid=5,gid=6,mode=0701 --mount=type=secret,id=s,target=/k,mode=0440 ' +
        'echo x > /src/new && echo y > /tmp/y && cp /src/package.json . && cat /k > s && stat -c "%a %u %g" ' +
        '/root/.cache /k >> s',
      'RUN ls -a / > l',
    ),
    secrets: { s: 'secret' },
  },
  {
    name: 'typed: a secret as a variable',
    dockerfile: shell('RUN --mount=type=secret,id=token,env=TOKEN,required echo ${#TOKEN} > /o'),
    secrets: { token: '1234' },
  },
  {
    name: 'typed: a secret that is not given',
    dockerfile: shell('RUN --mount=type=secret,id=no,required true'),
    fails: true,
  },
  {
    name: 'typed: a mount of nothing',
    dockerfile: shell('RUN --mount=type=bind,source=none,target=/x true'),
    fails: true,
  },
  { name: 'typed: a mount of no type', dockerfile: shell('RUN --mount=type=foo,target=/x true'), fails: true },
  { name: 'typed: a cache without a target', dockerfile: shell('RUN --mount=type=cache true'), fails: true },
];

const SETTINGS: readonly TableCase[] = [
  {
    name: 'typed: labels over several lines',
    dockerfile: scratch(
      'LABEL org.opencontainers.image.title="A b" \\',
      '      org.opencontainers.image.description="long \\',
      'text" \\',
      "      single='$X' empty=",
    ),
  },
  {
    name: 'typed: a health check over several lines',
    dockerfile: scratch(
      'HEALTHCHECK --interval=1m --timeout=3s --start-period=5s --start-interval=2s --retries=3 \\',
      '  CMD wget -q localhost/ || exit 1',
      'STOPSIGNAL SIGRTMIN+3',
    ),
  },
  {
    name: 'typed: ports of variables',
    dockerfile: scratch('ARG PORT', 'EXPOSE ${PORT:-3000} 53/udp 53/tcp', 'ENV P=9000-9002', 'EXPOSE $P/udp'),
  },
  {
    name: 'typed: commands that replace each other',
    dockerfile: shell('CMD one', 'ENTRYPOINT ["e"]', 'CMD ["two", "$A"]', 'ENTRYPOINT exec e $0', 'CMD three'),
  },
  {
    name: 'typed: options in quotes',
    dockerfile: shell(
      `ENV OPTS="-Xmx1g -Dx='y z'" B=b\\ c D="\${OPTS} \\"q\\""`,
      'ENV E e  f ',
      'RUN env | grep -E "^[OBDE]" > /o',
    ),
  },
  {
    name: 'typed: defaults within defaults',
    dockerfile: scratch('ARG A', 'ARG B=${A:-b}', 'ENV C=${A:-${B:-c}} D=${A:+${B}} E=${B:+<$B>}', 'LABEL x="$C$D$E"'),
  },
  {
    name: 'typed: directories one after the other',
    dockerfile: scratch('WORKDIR /a', 'WORKDIR b', 'WORKDIR ../c/', 'ENV W=/e', 'WORKDIR $W/f', 'COPY run.sh .'),
  },
  { name: 'typed: a word in the middle of a line that goes on', dockerfile: 'FROM scr\\\natch\nLA\\\nBEL a=\\\nb\n' },
  { name: 'typed: a flag that is misspelt', dockerfile: scratch('COPY --chwon=1 package.json /'), fails: true },
  { name: 'typed: a comment behind a flag', dockerfile: scratch('COPY --from=0 # x', '/a /b'), fails: true },
  { name: 'typed: quotes that do not end', dockerfile: scratch('ENV A="b'), fails: true },
  { name: 'typed: an instruction without words', dockerfile: scratch('COPY'), fails: true },
];

export const TYPED_CASES: readonly TableCase[] = [...COPIES, ...STAGES, ...RUNS, ...SETTINGS].map((one) => ({
  ...one,
  files: { ...PROJECT, ...one.files },
}));
