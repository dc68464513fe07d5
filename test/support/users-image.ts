/** An image of all kinds of files and owners, and whose the files in archives, and processes, are. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { buildImage, buildLayer, busyboxEntries, everyFileType } from './image-builder.js';

export const image = buildImage({
  layers: [
    buildLayer(busyboxEntries()),
    buildLayer([
      ...everyFileType(),
      { path: 'implied/by/this', content: 'its directories have no entries\n' },
      { path: 'content/', type: 'directory', mode: 0o750, uid: 1500, gid: 50 },
      { path: 'content/own', content: 'of 1500\n', uid: 1500, gid: 50 },
      { path: 'content/root', content: 'of root\n' },
    ]),
  ],
});
/** The name of the image. */
export const IMAGE = 'test/userns:1';

export const idsOf = (pid: number): string =>
  /^Uid:\t(\d+)[^]*^Gid:\t(\d+)/m
    .exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
    ?.slice(1, 3)
    .join(':') ?? '';
/** `name uid:gid` of the entries of a tar. */
export const owners = (tar: Buffer): string[] =>
  execFileSync('tar', ['--numeric-owner', '-tvf', '-'], { input: tar, encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\n')
    .flatMap((line) => {
      const [, ids = '', , , , name = ''] = line.split(/ +/);
      return name === '' ? [] : [`${name} ${ids.replace('/', ':')}`];
    });
