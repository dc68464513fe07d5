/** Mounts of RUN that are rarely typed: odd options, one over the other, and wrong ones. */
import { rare, wrong } from './rare.js';
import { shell, stages, type TableCase } from '../case.js';

const at = (mount: string, command: string): string => `RUN --mount=${mount} ${command}`;

export const RARE_MOUNT_CASES: readonly TableCase[] = [
  rare(
    'a mount of one file, and of a link',
    shell(at('source=f,target=/m', 'cat /m > /o'), at('source=d/l,target=/m2', 'cat /m2 >> /o')),
  ),
  rare(
    'a mount over the working directory',
    shell('WORKDIR /w', 'COPY f here', at('target=.', 'ls > /o'), 'RUN ls >> /o'),
  ),
  rare(
    'a mount below a mount',
    shell(
      'RUN --mount=target=/m,rw --mount=type=tmpfs,target=/m/d --mount=type=cache,target=/m/d/c ' +
        'ls -R /m > /o && ls -A / >> /o',
    ),
  ),
  rare('mounts in the wrong order', shell('RUN --mount=type=tmpfs,target=/m/d --mount=target=/m,rw ls -R /m > /o')),
  rare(
    'mounts of variables',
    shell(
      'ARG S=d T=/m',
      'ENV M=0711 U=5',
      at('source=$S,target=${T}1', 'ls /m1 > /o'),
      at('type=tmpfs,target=$T/2', 'ls -d /m/2 >> /o'),
    ),
  ),
  rare(
    'an owner of a variable',
    shell('ARG U=5', at('type=cache,target=/c,uid=$U,id=owner', 'ls -ldn /c | cut -c1-25 > /o')),
  ),
  rare(
    'caches by turns',
    shell(
      at('type=cache,target=/c,id=turns,sharing=locked', 'echo 1 > /c/x'),
      at('type=cache,target=/c,id=turns,sharing=private', 'cat /c/x > /o'),
      at('type=cache,target=/c,id=turns,ro', 'cat /c/x >> /o; touch /c/y 2>&1 | grep -o Read-only >> /o'),
    ),
  ),
  rare(
    'a cache for a user',
    shell(
      'USER daemon',
      at('type=cache,target=/c/d,id=user,uid=1,mode=0700', 'touch /c/d/x && stat -c "%u %a" /c/d /c > /tmp/o'),
    ),
  ),
  rare(
    'a cache that begins with files and has an owner',
    stages(
      'FROM scratch AS s',
      'COPY --chown=3:4 d /s',
      shell(
        at(
          'type=cache,target=/c,id=mixed,from=s,source=s,uid=5,mode=0700',
          'ls -lanR /c | grep -v total | cut -c1-27 > /o',
        ),
      ),
    ),
  ),
  rare(
    'a cache of a relative place',
    shell(
      'WORKDIR /w',
      at('type=cache,target=rel,id=rel', 'ls -d $PWD/rel > /o'),
      at('type=cache,id=rel,target=$PWD', 'true'),
    ),
  ),
  rare(
    'memory with a size in words',
    shell(at('type=tmpfs,target=/m,size=2m', "df -k /m | awk 'NR==2{print $2}' > /o; stat -c %a /m >> /o")),
  ),
  rare(
    'secrets beside each other',
    shell(
      'WORKDIR /w',
      'RUN --mount=type=secret,id=a/b --mount=type=secret,id=s,dst=x/y,mode=444 ' +
        '--mount=type=secret,id=s,target=/etc/motd,uid=5 ' +
        'ls -ln /run/secrets /run/secrets/* x/y /etc/motd | grep -v total | cut -c1-25 > /o',
    ),
    { secrets: { s: '1', b: '2' } },
  ),
  rare('a secret by its place', shell(at('type=secret,target=/run/secrets/s', 'cat /run/secrets/s > /o')), {
    secrets: { s: '1' },
  }),
  rare(
    'a mount that is read and written',
    shell(at('target=/m,ro=false', 'touch /m/x && ls /m > /o'), at('target=/m,readonly=true', 'touch /m/x')),
    { fails: true },
  ),
  wrong('a mount with a key without a value', at('type=cache,target=/c,uid', 'true')),
  wrong('a mount with an unknown key', at('type=cache,target=/c,user=1', 'true')),
  wrong('a mount with a wrong owner', at('type=cache,target=/c,uid=x', 'true')),
  wrong('a mount with a wrong mode', at('type=cache,target=/c,mode=9', 'true')),
  wrong('a mount with a wrong sharing', at('type=cache,target=/c,sharing=some', 'true')),
  wrong('a mount that is misspelt', at('type=cahce,target=/c', 'true')),
  wrong('a secret of nothing', at('type=secret', 'true')),
  wrong('a secret with sharing', at('type=secret,id=s,sharing=locked', 'true')),
  wrong('a bind with a size', at('target=/m,size=1m', 'true')),
  wrong('memory without a place', at('type=tmpfs', 'true')),
  wrong('memory with a wrong size', at('type=tmpfs,target=/m,size=big', 'true')),
  wrong('a secret that may be needed', at('type=secret,id=s,required=maybe', 'true')),
  wrong('a mount from no stage', at('from=none.example/x,target=/m', 'true').replace('none.example/x', 'UPPER')),
  rare('a mount in quotes that do not end', shell(at('"target=/m', 'true'))),
  wrong('a mount without a value', 'RUN --mount true'),
  wrong('a network that is unknown', 'RUN --network=some true'),
];
